import { FileText } from "lucide-react";
import type { SourceDocumentUIPart, SourceUrlUIPart } from "ai";
import { memo } from "react";
import { Hint } from "../ui/button";
import { classes } from "../ui/classes";
import { withoutPrefix } from "../words";
import { useTurn } from "./turns";

export type Source = SourceUrlUIPart | SourceDocumentUIPart;

const CHIP =
  "inline-flex min-h-8 pointer-coarse:min-h-10 max-w-64 items-center gap-2 rounded-full border border-line bg-canvas py-1 pr-3 pl-1.5 text-sm";

/** How many chips are drawn at once. */
const GROUP = 20;

/** The sources that the answer cites, as chips. */
export function Sources({ sources }: { sources: Source[] }) {
  return (
    <div role="group" aria-label="Sources" className="sources">
      <p className="mb-2 text-xs font-medium text-soft">{sources.length === 1 ? "1 source" : `${sources.length} sources`}</p>
      <ol className="flex flex-wrap gap-2">
        {groupsOf(sources).map((group, index) => (
          <Chips key={index} look={JSON.stringify(group)} />
        ))}
      </ol>
    </div>
  );
}

function groupsOf(sources: Source[]): Source[][] {
  return Array.from({ length: Math.ceil(sources.length / GROUP) }, (_, index) => sources.slice(index * GROUP, (index + 1) * GROUP));
}

/** Some chips, given as JSON: the hook copies the sources whenever anything of the answer changes. */
const Chips = memo(function Chips({ look }: { look: string }) {
  const drawn = useTurn(look, false);
  return (JSON.parse(drawn ?? "[]") as Source[]).map((source) => (
    <li key={source.sourceId} className="min-w-0">
      <Chip source={source} />
    </li>
  ));
});

function Chip({ source }: { source: Source }) {
  if (source.type === "source-document") {
    return (
      <span className={CHIP}>
        <FileText aria-hidden="true" className="icon size-4 shrink-0 text-soft" />
        <span className="truncate">{source.title ?? source.filename}</span>
      </span>
    );
  }
  const text = source.title ?? shortAddress(source.url);
  if (!isWebAddress(source.url)) return <span className={CHIP}>{text}</span>;
  return (
    <Hint text={source.url}>
      <a href={source.url} target="_blank" rel="noreferrer" className={classes(CHIP, "hover:bg-muted")}>
        <Favicon url={source.url} />
        <span className="truncate">{text}</span>
      </a>
    </Hint>
  );
}

/** A letter on a colour that the host's name gives: the page asks no other host for an icon. */
function Favicon({ url }: { url: string }) {
  const { host: full } = new URL(url, document.baseURI);
  if (full === location.host) return <FileText aria-hidden="true" className="icon size-4 shrink-0 text-soft" />;
  const host = withoutPrefix(full);
  const hue = [...host].reduce((sum, letter) => (sum * 31 + letter.charCodeAt(0)) % 360, 7);
  return (
    <span
      aria-hidden="true"
      className="grid size-5 shrink-0 place-items-center rounded-full text-xs font-semibold text-white uppercase"
      style={{ backgroundColor: `hsl(${hue} 45% 32%)` }}
    >
      {host[0]}
    </span>
  );
}

/** An address as a person would say it. */
function shortAddress(url: string): string {
  if (!isWebAddress(url)) return url;
  const { host, pathname } = new URL(url, document.baseURI);
  return withoutPrefix(host) + pathname.replace(/\/$/, "");
}

/** Whether a link is safe: an address such as `javascript:` is not. */
export function isWebAddress(url: string): boolean {
  return URL.canParse(url, document.baseURI) && /^https?:$/.test(new URL(url, document.baseURI).protocol);
}
