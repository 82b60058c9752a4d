import { useState } from "react";
import { classes } from "./ui/classes";
import { Dialog } from "./ui/dialog";

export interface Command {
  name: string;
  run: () => void;
  shortcut?: string;
  group?: string;
}

const MOST = 12;

/** A list of everything that can be done, found by typing. */
export function CommandPalette({ open, close, commands }: { open: boolean; close: () => void; commands: Command[] }) {
  return (
    <Dialog title="Commands" bare open={open} close={close} className="top-24 translate-y-0">
      <Choices commands={commands} close={close} />
    </Dialog>
  );
}

function Choices({ commands, close }: { commands: Command[]; close: () => void }) {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = commands.filter(({ name }) => words.every((word) => name.toLowerCase().includes(word))).slice(0, MOST);
  const run = (command: Command | undefined) => {
    if (!command) return;
    close();
    command.run();
  };
  return (
    <>
      <input
        autoFocus
        role="combobox"
        aria-expanded="true"
        aria-controls="commands"
        aria-activedescendant={found[at] && `command-${at}`}
        aria-label="Command"
        placeholder="Type a command or the title of a chat…"
        className="h-14 w-full border-b border-line bg-transparent px-5 outline-none placeholder:text-soft"
        value={text}
        onChange={(event) => {
          setText(event.target.value);
          setAt(0);
        }}
        onKeyDown={(event) => {
          const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
          if (step && found.length) {
            event.preventDefault();
            const next = (at + step + found.length) % found.length;
            setAt(next);
            document.getElementById(`command-${next}`)?.scrollIntoView({ block: "nearest" });
          } else if (event.key === "Enter") {
            event.preventDefault();
            run(found[at]);
          }
        }}
      />
      <ul id="commands" role="listbox" aria-label="Commands" className="max-h-96 overflow-y-auto p-2">
        {found.length === 0 && <li className="px-3 py-2 text-sm text-soft">No matches.</li>}
        {found.map((command, index) => (
          <li
            key={index}
            id={`command-${index}`}
            role="option"
            aria-selected={index === at}
            className={classes("flex h-10 pointer-coarse:h-11 cursor-pointer items-center justify-between gap-4 rounded-lg px-3 text-sm", index === at && "bg-muted")}
            onPointerMove={() => setAt(index)}
            onClick={() => run(command)}
          >
            <span className="truncate" dir="auto">{command.name}</span>
            <span className="text-xs whitespace-nowrap text-soft">{command.shortcut ?? command.group}</span>
          </li>
        ))}
      </ul>
    </>
  );
}
