import { Check, Copy, X } from "lucide-react";
import { useState } from "react";
import { IconButton } from "../ui/button";

/** Copy a text to the clipboard, and show for a moment whether it was copied: a browser may refuse it. */
export function CopyButton({ text, label = "Copy" }: { text: string | (() => string); label?: string }) {
  const [outcome, setOutcome] = useState<"copied" | "refused">();
  return (
    <IconButton
      small
      icon={outcome === "copied" ? Check : outcome === "refused" ? X : Copy}
      label={outcome === "copied" ? "Copied" : outcome === "refused" ? "The browser refused to copy" : label}
      onClick={() => {
        void copy(typeof text === "string" ? text : text()).then((done) => {
          setOutcome(done ? "copied" : "refused");
          setTimeout(() => setOutcome(undefined), done ? 1500 : 4000);
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
