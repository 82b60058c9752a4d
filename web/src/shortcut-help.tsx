import { Dialog } from "./ui/dialog";

const shortcuts = (inspector: boolean): [string, string][] => [
  ["Enter", "Send the message, or the edited message"],
  ["Shift + Enter", "New line"],
  ["Esc", `Stop the answer, cancel an edit${inspector ? ", close the inspector" : ""}`],
  ["/", "Focus the input"],
  ["↑", "Edit the last message (in the empty input)"],
  ["Ctrl + K", "Commands"],
  ["Ctrl + Shift + O", "New chat"],
  ["?", "This list"],
];

/** All keyboard shortcuts. */
export function ShortcutHelp({ inspector, open, close }: { inspector: boolean; open: boolean; close: () => void }) {
  return (
    <Dialog title="Keyboard shortcuts" open={open} close={close}>
      <dl className="grid grid-cols-[auto_1fr] items-center gap-x-6 gap-y-3 overflow-auto px-6 pb-6 text-sm">
        {shortcuts(inspector).map(([keys, text]) => (
          <div key={keys} className="contents">
            <dt>
              <kbd className="rounded-md border border-line bg-surface px-2 py-0.5 font-mono text-xs whitespace-nowrap">{keys}</kbd>
            </dt>
            <dd>{text}</dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}
