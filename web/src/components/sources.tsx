import { Collapsible } from "radix-ui";
import type { SourceDocumentUIPart, SourceUrlUIPart } from "ai";
import { Icon } from "./icons";

export type Source = SourceUrlUIPart | SourceDocumentUIPart;

/** The sources that the answer cites. */
export function Sources({ sources }: { sources: Source[] }) {
  const label = sources.length === 1 ? "1 source" : `${sources.length} sources`;
  return (
    <Collapsible.Root className="sources" defaultOpen>
      <Collapsible.Trigger className="fold">
        <Icon name="chevron" />
        {label}
      </Collapsible.Trigger>
      <Collapsible.Content asChild>
        <ol>
          {sources.map((source) => (
            <li key={source.sourceId}>
              {source.type === "source-url" ? (
                <SafeLink url={source.url} text={source.title ?? source.url} />
              ) : (
                (source.title ?? source.filename)
              )}
            </li>
          ))}
        </ol>
      </Collapsible.Content>
    </Collapsible.Root>
  );
}

/** A link to an http(s) address; any other address, such as `javascript:`, is shown as plain text. */
export function SafeLink({ url, text }: { url: string; text: string }) {
  const safe = URL.canParse(url, document.baseURI) && /^https?:$/.test(new URL(url, document.baseURI).protocol);
  if (!safe) return <span>{text}</span>;
  return (
    <a href={url} target="_blank" rel="noreferrer">
      {text}
    </a>
  );
}
