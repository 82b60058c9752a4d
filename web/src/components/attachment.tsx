import { Download, File as FileIcon } from "lucide-react";
import type { FileUIPart } from "ai";
import { useEffect, useState } from "react";
import { fetchAsUser, loadToken } from "../token";
import { Dialog } from "../ui/dialog";
import { isWebAddress } from "./sources";

/** Images that this server stores are shown, too. */
const OWN_FILE = /^(?:https?:\/\/[^/]+)?\/[^?#]*\/files\/[^/?#]+$/;

/** An image without a pixel, until the file was read. */
const NOTHING = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7";

/** The address of a file whose contents found no room in the browser's storage. */
const ONLY_ITS_NAME = "data:,";

const CHIP =
  "attachment inline-flex min-h-10 max-w-full items-center gap-2 self-start rounded-xl border border-line bg-canvas px-3 py-1.5 text-sm";
const LINK = `${CHIP} hover:bg-muted`;

/** A file of a message. Only images that are inline or on this server are shown: the page asks no other host. */
export function Attachment({ file }: { file: Pick<FileUIPart, "url" | "mediaType" | "filename"> }) {
  const name = file.filename ?? kindOf(file.mediaType);
  const url = useReadable(file.url);
  const [unreadable, setUnreadable] = useState<string>();
  const held = /^(?:data|blob):/.test(url) && url !== ONLY_ITS_NAME;
  if (file.mediaType.startsWith("image/") && (held || isOwn(url)) && url !== unreadable) {
    return <Picture url={url} name={name} fail={() => setUnreadable(url)} />;
  }
  const chip = (
    <>
      <FileIcon aria-hidden="true" className="icon size-4 shrink-0 text-soft" />
      <span className="truncate">{name}</span>
      {held && <Download aria-hidden="true" className="icon size-4 shrink-0 text-soft" />}
    </>
  );
  if (held) {
    return (
      <a href={url} download={file.filename ?? ""} className={LINK}>
        {chip}
      </a>
    );
  }
  if (!isWebAddress(url)) return <span className={CHIP}>{chip}</span>;
  return (
    <a href={url} target="_blank" rel="noreferrer" className={LINK}>
      {chip}
    </a>
  );
}

/** What to call a file without a name: `CSV file`. */
function kindOf(mediaType: string): string {
  const [kind, format = ""] = mediaType.split(/[/;+]/);
  return `${/^\w{2,4}$/.test(format) ? `${format.toUpperCase()} ` : ""}${kind === "image" ? "image" : "file"}`;
}

/**
 * The address from which the browser can read a file. A server that needs a token gets it with a request of the page:
 * an image or a link sends none.
 */
function useReadable(url: string): string {
  const [read, setRead] = useState<string>();
  useEffect(() => {
    if (!loadToken() || url.startsWith("data:") || !isOwn(url)) return;
    const left = new AbortController();
    let made: string | undefined;
    void fetchAsUser(url, { signal: left.signal })
      .then((response) => (response.ok ? response.blob() : undefined))
      .then((blob) => blob && setRead((made = URL.createObjectURL(blob))))
      .catch(() => undefined);
    return () => {
      left.abort();
      if (made) URL.revokeObjectURL(made);
      setRead(undefined);
    };
  }, [url]);
  if (read) return read;
  return loadToken() && !url.startsWith("data:") && isOwn(url) ? NOTHING : url;
}

function isOwn(url: string): boolean {
  return OWN_FILE.test(url) && new URL(url, document.baseURI).origin === location.origin;
}

/** An image that opens in a viewer. `fail`: what to do if it cannot be shown. */
function Picture({ url, name, fail }: { url: string; name: string; fail: () => void }) {
  const [open, setOpen] = useState(false);
  return (
    <>
      <button type="button" className="block max-w-full self-start rounded-xl pointer-coarse:min-h-10 pointer-coarse:min-w-10" aria-label={`View ${name}`} onClick={() => setOpen(true)}>
        <img className="max-h-72 max-w-full rounded-xl border border-line" src={url} alt={name} onError={fail} />
      </button>
      <Dialog title={name} open={open} close={() => setOpen(false)} className="max-w-5xl">
        <div className="min-h-0 overflow-auto px-6 pb-4">
          <img src={url} alt={name} className="mx-auto max-h-[70dvh] min-w-16 object-contain" />
          <a href={url} download={name} className="mt-4 inline-flex items-center gap-2 text-sm text-accent underline underline-offset-2">
            <Download aria-hidden="true" className="size-4" />
            Download
          </a>
        </div>
      </Dialog>
    </>
  );
}
