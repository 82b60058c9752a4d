import { memo } from "react";
import { Streamdown } from "streamdown";

/** Markdown that may end in the middle of a word or a table, as it does while it streams. */
export const Markdown = memo(function Markdown({ text, streaming }: { text: string; streaming: boolean }) {
  return (
    <Streamdown className="markdown" controls={false} linkSafety={{ enabled: false }} isAnimating={streaming}>
      {text}
    </Streamdown>
  );
});
