import { Collapsible } from "radix-ui";
import { useEffect, useRef, useState } from "react";
import { Icon } from "./icons";
import { Markdown } from "./markdown";

/** What the model thinks: open while it thinks, folded when it is done, as the reader wishes after that. */
export function Reasoning({ text, streaming }: { text: string; streaming: boolean }) {
  const [open, setOpen] = useState(streaming);
  const touched = useRef(false);
  useEffect(() => {
    if (!touched.current) setOpen(streaming);
  }, [streaming]);
  return (
    <Collapsible.Root
      className="reasoning"
      open={open}
      onOpenChange={(wanted) => {
        touched.current = true;
        setOpen(wanted);
      }}
    >
      <Collapsible.Trigger className="fold">
        <Icon name="chevron" />
        {streaming ? "Thinking…" : "Thoughts"}
      </Collapsible.Trigger>
      <Collapsible.Content className="reasoning-content">
        <Markdown text={text} streaming={streaming} />
      </Collapsible.Content>
    </Collapsible.Root>
  );
}
