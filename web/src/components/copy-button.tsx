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
        void navigator.clipboard.writeText(typeof text === "string" ? text : text()).then(() => {
          setCopied(true);
          setTimeout(() => setCopied(false), 1500);
        });
      }}
    />
  );
}
