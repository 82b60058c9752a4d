import { memo } from "react";
import { defaultRehypePlugins, Streamdown, type StreamdownProps } from "streamdown";

const harden = (defaultRehypePlugins["harden"] as unknown as [unknown])[0];

/** Links may be relative to the page. Only inline images are shown: the page makes no requests to other hosts. */
const rehypePlugins = Object.values({
  ...defaultRehypePlugins,
  harden: [harden, { defaultOrigin: document.baseURI, allowedLinkPrefixes: ["*"], allowDataImages: true }],
}) as StreamdownProps["rehypePlugins"];

/** Markdown that may end in the middle of a word or a table, as it does while it streams. */
export const Markdown = memo(function Markdown({ text, streaming }: { text: string; streaming: boolean }) {
  return (
    <Streamdown
      className="markdown"
      controls={false}
      linkSafety={{ enabled: false }}
      isAnimating={streaming}
      rehypePlugins={rehypePlugins}
    >
      {text}
    </Streamdown>
  );
});
