import type { FileUIPart } from "ai";
import { SafeLink } from "./sources";

/** A file of a message. Only inline images (data URLs) are shown: the page makes no requests to other hosts. */
export function Attachment({ file }: { file: Pick<FileUIPart, "url" | "mediaType" | "filename"> }) {
  const name = file.filename ?? file.mediaType;
  const held = file.url.startsWith("data:");
  if (held && file.mediaType.startsWith("image/") && file.url !== "data:,") {
    return <img className="attachment-image" src={file.url} alt={name} />;
  }
  return (
    <span className="attachment">
      {held ? (
        <a href={file.url} download={name}>
          {name}
        </a>
      ) : (
        <SafeLink url={file.url} text={name} />
      )}
    </span>
  );
}
