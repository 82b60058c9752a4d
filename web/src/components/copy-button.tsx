import { Check, Copy } from "lucide-react";
import { useState } from "react";
import { IconButton } from "../ui/button";

/** Copy a text to the clipboard, and show for a moment that it was copied. */
export function CopyButton({ text, label = "Copy" }: { text: string | (() => string); label?: string }) {
  const [copied, setCopied] = useState(false);
  return (
    <IconButton
      small
      icon={copied ? Check : Copy}
      label={copied ? "Copied" : label}
      onClick={() => {
        void copy(typeof text === "string" ? text : text()).then((done) => {
          setCopied(done);
          setTimeout(() => setCopied(false), 1500);
        });
      }}
    />
  );
}

/** A page that was loaded over plain HTTP from another machine has no clipboard: there a selection is copied. */
async function copy(text: string): Promise<boolean> {
  if (navigator.clipboard) return navigator.clipboard.writeText(text).then(() => true, () => false);
  const focused = document.activeElement;
  const area = Object.assign(document.createElement("textarea"), { value: text, className: "sr-only" });
  // Inside the dialog, if one is open: it gives the focus to nothing else.
  (focused?.closest("[role=dialog]") ?? document.body).append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  if (focused instanceof HTMLElement) focused.focus();
  return done;
}
