import { useState } from "react";
import { classes } from "./ui/classes";
import { Dialog } from "./ui/dialog";

export interface Command {
  name: string;
  run: () => void;
  shortcut?: string;
  group: Group;
}

/** The headings in the list, in their order. The commands come in this order, too. */
const GROUPS = ["Commands", "Chats"] as const;
type Group = (typeof GROUPS)[number];

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
      <div id="commands" role="listbox" aria-label="Commands" className="max-h-96 overflow-y-auto p-2">
        {found.length === 0 && <p className="px-3 py-2 text-sm text-soft">No matches.</p>}
        {GROUPS.map((group) => {
          const options = found.flatMap((command, index) => (command.group === group ? [{ command, index }] : []));
          return options.length > 0 && (
            <div key={group} role="group" aria-labelledby={`group-${group}`}>
              <p id={`group-${group}`} role="presentation" className="px-3 pt-2 pb-1 text-xs font-medium text-soft">{group}</p>
              {options.map(({ command, index }) => (
                <div
                  key={index}
                  id={`command-${index}`}
                  role="option"
                  aria-selected={index === at}
                  className={classes("flex h-10 pointer-coarse:h-11 cursor-pointer items-center justify-between gap-4 rounded-lg px-3 text-sm", index === at && "bg-muted")}
                  onPointerMove={() => setAt(index)}
                  onClick={() => run(command)}
                >
                  <span className="truncate" dir="auto">{command.name}</span>
                  {command.shortcut && <kbd className="font-mono text-xs whitespace-nowrap text-soft">{command.shortcut}</kbd>}
                </div>
              ))}
            </div>
          );
        })}
      </div>
    </>
  );
}
