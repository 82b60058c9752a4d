import { X } from "lucide-react";
import { Dialog as Radix } from "radix-ui";
import type { ReactNode } from "react";
import { classes } from "./classes";

interface Props {
  title: string;
  open: boolean;
  close: () => void;
  children: ReactNode;
  /** Whether the title is for screen readers only. */
  bare?: boolean;
  className?: string;
}

/**
 * A modal dialog. The backdrop is an element of our own: Radix's would lock scrolling with an inline style element,
 * which the Content-Security-Policy forbids, and the page itself does not scroll.
 */
export function Dialog({ title, open, close, children, bare = false, className }: Props) {
  return (
    <Radix.Root open={open} onOpenChange={(wanted) => !wanted && close()}>
      <Radix.Portal>
        <div className="fixed inset-0 z-40 bg-black/40" aria-hidden="true" />
        <Radix.Content
          aria-describedby={undefined}
          className={classes(
            "fixed top-1/2 left-1/2 z-50 flex max-h-[85dvh] w-[calc(100%-2rem)] max-w-lg -translate-x-1/2 -translate-y-1/2 flex-col overflow-hidden rounded-2xl border border-line bg-canvas shadow-float",
            className,
          )}
        >
          <div className={bare ? "sr-only" : "flex items-center justify-between gap-4 py-3 pr-3 pl-6"}>
            <Radix.Title className="truncate text-base font-semibold">{title}</Radix.Title>
            {/* No tooltip: it would open with the focus, and take the first Escape. */}
            {!bare && (
              <Radix.Close aria-label="Close" className="grid size-8 pointer-coarse:size-11 place-items-center rounded-lg text-soft hover:bg-muted hover:text-ink">
                <X aria-hidden="true" className="size-4" />
              </Radix.Close>
            )}
          </div>
          {children}
        </Radix.Content>
      </Radix.Portal>
    </Radix.Root>
  );
}
