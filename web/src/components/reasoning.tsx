import { Collapsible } from "radix-ui";
import { useEffect, useRef, useState } from "react";
import { Icon } from "./icons";
import { Markdown } from "./markdown";

/** The model's reasoning: open while it streams, collapsed when it is done, unless the user has toggled it. */
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
