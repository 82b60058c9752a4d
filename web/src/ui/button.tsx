import type { LucideIcon } from "lucide-react";
import { Tooltip } from "radix-ui";
import type { ComponentProps } from "react";
import { classes } from "./classes";

const KINDS = {
  plain: "border border-line bg-canvas hover:bg-muted",
  primary: "bg-accent text-on-accent hover:opacity-90",
  quiet: "text-soft hover:bg-muted hover:text-ink",
  danger: "border border-line bg-canvas text-bad hover:bg-bad-surface",
};

/** A button with a text. */
export function Button({ kind = "plain", className, ...rest }: ComponentProps<"button"> & { kind?: keyof typeof KINDS }) {
  return (
    <button
      type="button"
      className={classes(
        "inline-flex min-h-9 pointer-coarse:min-h-11 items-center justify-center gap-2 rounded-lg px-4 text-sm font-medium transition-colors disabled:opacity-50",
        KINDS[kind],
        className,
      )}
      {...rest}
    />
  );
}

interface IconButtonProps extends ComponentProps<"button"> {
  icon: LucideIcon;
  label: string;
  /** A key that does the same, shown in the tooltip. */
  shortcut?: string;
  small?: boolean;
  round?: boolean;
  /** Whether it is the main action, in the accent colour. */
  primary?: boolean;
}

const PLAIN = "text-soft hover:bg-muted hover:text-ink aria-pressed:bg-muted aria-pressed:text-accent";
const PRIMARY = "bg-accent text-on-accent hover:opacity-90";

/** A button with an icon alone: its label is its name and its tooltip. */
export function IconButton({ icon: Icon, label, shortcut, small, round, primary, className, ...rest }: IconButtonProps) {
  return (
    <Hint text={label} shortcut={shortcut}>
      <button
        type="button"
        aria-label={label}
        className={classes(
          "inline-grid shrink-0 place-items-center transition-colors disabled:pointer-events-none disabled:opacity-40",
          primary ? PRIMARY : PLAIN,
          round ? "rounded-full" : "rounded-lg",
          small ? "size-8 pointer-coarse:size-10" : "size-9 pointer-coarse:size-11",
          className,
        )}
        {...rest}
      >
        <Icon aria-hidden="true" className={classes("icon", small ? "size-4" : "size-[1.125rem]")} />
      </button>
    </Hint>
  );
}

/** A tooltip. */
export function Hint({ text, shortcut, children }: { text: string; shortcut?: string | undefined; children: React.ReactNode }) {
  return (
    <Tooltip.Root>
      <Tooltip.Trigger asChild>{children}</Tooltip.Trigger>
      <Tooltip.Portal>
        <Tooltip.Content
          sideOffset={6}
          collisionPadding={8}
          className="screen-only pointer-events-none z-50 flex max-w-72 items-center gap-2 rounded-md bg-ink px-2 py-1 text-xs text-canvas"
        >
          {text}
          {shortcut && <kbd className="font-mono opacity-80">{shortcut}</kbd>}
        </Tooltip.Content>
      </Tooltip.Portal>
    </Tooltip.Root>
  );
}
