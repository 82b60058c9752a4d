import { Download, Ellipsis, Link, LoaderCircle, LogOut, Pencil, Pin, PinOff, Search, SquarePen, Trash2, type LucideIcon } from "lucide-react";
import { DropdownMenu } from "radix-ui";
import { memo, useEffect, useMemo, useRef, useState } from "react";
import type { ChatEntry } from "./chats";
import { Button, IconButton } from "./ui/button";
import { classes } from "./ui/classes";

export interface ChatActions {
  open: (id: string) => void;
  create: () => void;
  rename: (id: string, title: string) => void;
  pin: (id: string, pinned: boolean) => void;
  remove: (chat: ChatEntry) => void;
  export: (chat: ChatEntry, format: "json" | "markdown") => void;
  /** Share a chat that the server has; undefined where it shares none. */
  share: ((chat: ChatEntry) => void) | undefined;
}

interface Props extends ChatActions {
  /** Whether it lies over the rest of the page. */
  over: boolean;
  chats: ChatEntry[];
  current: string;
  running: string[];
  query: string;
  setQuery: (text: string) => void;
  signOut: (() => void) | undefined;
}

/** How many chats are listed at first, and how many more when the end of the list comes into sight. */
const PORTION = 40;

export function focusChats(): void {
  document.getElementById("chats")?.focus();
}

/** The list of chats, in groups by date, with a search above it. Over the page, it takes the focus and gives it back. */
export function Sidebar({ over, chats, current, running, query, setQuery, signOut, ...given }: Props) {
  const actions = useStable(given);
  const [most, setMost] = useState(PORTION);
  useEffect(() => {
    const before = document.activeElement;
    if (!over) return undefined;
    focusChats();
    return () => {
      if (document.activeElement === document.body && before instanceof HTMLElement) before.focus();
    };
  }, [over]);
  return (
    <nav
      id="chats"
      tabIndex={-1}
      className="screen-only outline-none flex w-72 shrink-0 flex-col gap-2 border-r border-line bg-surface p-3 max-md:fixed max-md:inset-y-0 max-md:left-0 max-md:z-30 max-md:w-[min(20rem,85%)] max-md:shadow-float"
      aria-label="Chats"
    >
      <Button className="justify-start px-3" onClick={actions.create}>
        <SquarePen aria-hidden="true" className="size-4" />
        New chat
      </Button>
      <label className="relative block">
        <Search aria-hidden="true" className="pointer-events-none absolute top-1/2 left-3 size-4 -translate-y-1/2 text-soft" />
        <input
          type="search"
          className="h-9 w-full rounded-lg border border-line bg-canvas pr-3 pl-9 text-sm placeholder:text-soft pointer-coarse:h-11 pointer-coarse:text-base"
          aria-label="Search chats"
          placeholder="Search chats"
          value={query}
          onChange={(event) => setQuery(event.target.value)}
        />
      </label>
      <div className="-mx-1 min-h-0 flex-1 overflow-y-auto px-1">
        {chats.length === 0 && (
          <p className="px-3 py-2 text-sm text-soft">{query ? "No matching chats." : "No chats yet."}</p>
        )}
        {groupsOf(chats, most).map(([name, group]) => (
          <section key={name} aria-label={name}>
            <h2 className="px-3 pt-4 pb-1 text-xs font-medium text-soft">{name}</h2>
            <ul>
              {group.map((chat) => (
                <Entry key={chat.id} chat={chat} current={chat.id === current} running={running.includes(chat.id)} {...actions} />
              ))}
            </ul>
          </section>
        ))}
        {chats.length > most && <MoreChats listed={most} show={() => setMost(most + PORTION)} />}
      </div>
      {signOut && (
        <Button kind="quiet" className="justify-start px-3" onClick={signOut}>
          <LogOut aria-hidden="true" className="size-4" />
          Sign out
        </Button>
      )}
    </nav>
  );
}

/** The same actions at every rendering: they call what was given last. */
function useStable(given: ChatActions): ChatActions {
  const latest = useRef(given);
  latest.current = given;
  const shares = given.share !== undefined;
  return useMemo(
    () => ({
      open: (id) => latest.current.open(id),
      create: () => latest.current.create(),
      rename: (id, title) => latest.current.rename(id, title),
      pin: (id, pinned) => latest.current.pin(id, pinned),
      remove: (chat) => latest.current.remove(chat),
      export: (chat, format) => latest.current.export(chat, format),
      share: shares ? (chat) => latest.current.share?.(chat) : undefined,
    }),
    [shares],
  );
}

/** The end of a list that has more chats: they are shown when it comes into sight, or is pressed. */
function MoreChats({ listed, show }: { listed: number; show: () => void }) {
  const latest = useRef(show);
  latest.current = show;
  const button = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    const seen = new IntersectionObserver((all) => all.some((each) => each.isIntersecting) && latest.current());
    if (button.current) seen.observe(button.current);
    return () => seen.disconnect();
  }, [listed]); // it tells anew whether the end is in sight
  return (
    <button ref={button} type="button" className="w-full rounded-lg px-3 py-2 text-left text-sm text-soft pointer-coarse:py-3" onClick={show}>
      More chats
    </button>
  );
}

interface EntryProps extends ChatActions {
  chat: ChatEntry;
  current: boolean;
  running: boolean;
}

/** One chat. The list is read anew with every part of an answer; an entry that looks the same is not drawn again. */
const Entry = memo(
  DrawnEntry,
  ({ chat, ...one }, { chat: otherChat, ...other }) => isEqual(one, other) && isEqual(chat, otherChat),
);

function isEqual<T extends object>(one: T, other: T): boolean {
  const keys = Object.keys({ ...one, ...other }) as (keyof T)[];
  return keys.every((key) => one[key] === other[key]);
}

function DrawnEntry({ chat, current, running, open, rename, ...actions }: EntryProps) {
  const [renaming, setRenaming] = useState(false);
  const refocus = useRef(false);
  if (renaming) {
    return (
      <li>
        <TitleField
          title={chat.title}
          done={(title, byKey) => {
            refocus.current = byKey;
            setRenaming(false);
            if (title) rename(chat.id, title);
          }}
        />
      </li>
    );
  }
  return (
    <li className={classes("group/entry flex items-center rounded-lg hover:bg-muted", current && "bg-muted")}>
      <button
        type="button"
        ref={(button) => {
          if (refocus.current) button?.focus();
          refocus.current = false;
        }}
        className="min-w-0 flex-1 truncate rounded-lg py-2 pl-3 text-left text-sm pointer-coarse:py-3"
        dir="auto"
        aria-current={current ? "page" : undefined}
        title={chat.title}
        onClick={() => open(chat.id)}
      >
        {running && (
          <LoaderCircle role="img" aria-label="Answering:" className="me-2 inline size-3.5 animate-spin text-accent" />
        )}
        {chat.title}
      </button>
      <EntryMenu chat={chat} rename={() => setRenaming(true)} {...actions} />
    </li>
  );
}

function TitleField({ title, done }: { title: string; done: (title: string, byKey: boolean) => void }) {
  const [text, setText] = useState(title);
  return (
    <input
      autoFocus
      aria-label="Title"
      dir="auto"
      className="h-9 w-full rounded-lg border border-accent bg-canvas px-3 text-sm pointer-coarse:h-11 pointer-coarse:text-base"
      value={text}
      onFocus={(event) => event.target.select()}
      onChange={(event) => setText(event.target.value)}
      onBlur={() => done(text.trim(), false)}
      onKeyDown={(event) => {
        if (event.key === "Enter" && !event.nativeEvent.isComposing) {
          event.preventDefault(); // the entry has the focus then, and would be opened by the same key
          done(text.trim(), true);
        }
        if (event.key === "Escape") {
          event.preventDefault();
          done("", true);
        }
      }}
    />
  );
}

type MenuProps = Pick<ChatActions, "pin" | "remove" | "export" | "share"> & { chat: ChatEntry; rename: () => void };

function EntryMenu({ chat, rename, pin, remove, export: save, share }: MenuProps) {
  const renaming = useRef(false);
  return (
    <DropdownMenu.Root modal={false}>
      <DropdownMenu.Trigger asChild>
        <IconButton
          small
          icon={Ellipsis}
          label={`Options of ${chat.title}`}
          className="mr-1 opacity-100 md:can-hover:opacity-0 md:group-focus-within/entry:opacity-100 md:group-hover/entry:opacity-100 data-[state=open]:opacity-100"
        />
      </DropdownMenu.Trigger>
      <DropdownMenu.Portal>
        <DropdownMenu.Content
          align="end"
          collisionPadding={8}
          className="z-50 min-w-48 rounded-xl border border-line bg-canvas p-1 shadow-float"
          onCloseAutoFocus={(event) => {
            if (renaming.current) event.preventDefault(); // the field for the title takes the focus
            renaming.current = false;
          }}
        >
          <MenuItem
            icon={Pencil}
            text="Rename"
            choose={() => {
              renaming.current = true;
              rename();
            }}
          />
          <MenuItem icon={chat.pinned ? PinOff : Pin} text={chat.pinned ? "Unpin" : "Pin"} choose={() => pin(chat.id, !chat.pinned)} />
          {share && chat.stored && <MenuItem icon={Link} text={chat.shared ? "Shared link" : "Share"} choose={() => share(chat)} />}
          <MenuItem icon={Download} text="Export as Markdown" choose={() => save(chat, "markdown")} />
          <MenuItem icon={Download} text="Export as JSON" choose={() => save(chat, "json")} />
          <DropdownMenu.Separator className="my-1 h-px bg-line" />
          <MenuItem icon={Trash2} text="Delete" choose={() => remove(chat)} danger />
        </DropdownMenu.Content>
      </DropdownMenu.Portal>
    </DropdownMenu.Root>
  );
}

function MenuItem({ icon: Icon, text, choose, danger = false }: {
  icon: LucideIcon;
  text: string;
  choose: () => void;
  danger?: boolean;
}) {
  return (
    <DropdownMenu.Item
      onSelect={choose}
      className={classes(
        "flex h-9 pointer-coarse:h-11 cursor-pointer items-center gap-2 rounded-lg px-3 text-sm outline-none data-[highlighted]:bg-muted",
        danger && "text-bad",
      )}
    >
      <Icon aria-hidden="true" className="size-4" />
      {text}
    </DropdownMenu.Item>
  );
}

/** The first chats in their groups: pinned ones first, then by how long ago each was changed. */
function groupsOf(chats: ChatEntry[], most: number): [string, ChatEntry[]][] {
  const today = new Date().setHours(0, 0, 0, 0);
  const day = 24 * 3600 * 1000;
  const nameOf = ({ pinned, changed }: ChatEntry) => {
    if (pinned) return "Pinned";
    if (changed >= today) return "Today";
    if (changed >= today - day) return "Yesterday";
    if (changed >= today - 7 * day) return "Previous 7 days";
    return changed >= today - 30 * day ? "Previous 30 days" : "Older";
  };
  const groups = new Map<string, ChatEntry[]>(
    ["Pinned", "Today", "Yesterday", "Previous 7 days", "Previous 30 days", "Older"].map((name) => [name, []]),
  );
  for (const chat of chats) groups.get(nameOf(chat))?.push(chat);
  let left = most;
  for (const [name, group] of groups) {
    groups.set(name, group.slice(0, left));
    left = Math.max(0, left - group.length);
  }
  return [...groups].filter(([, group]) => group.length > 0);
}
