import { CodeXml, Command, Moon, PanelLeft, SquarePen, Sun, Workflow } from "lucide-react";
import { Tooltip } from "radix-ui";
import { useCallback, useEffect, useMemo, useState } from "react";
import { showChat, useChatInAddress } from "./address";
import { Chat, type ChatState, type PanelName } from "./chat";
import { loadChat, openNewChat, type ChatEntry } from "./chats";
import { CommandPalette, type Command as PaletteCommand } from "./command-palette";
import { focusPrompt } from "./components/prompt-input";
import { textOf } from "./parts";
import { saveFile } from "./save-file";
import { ServerChats } from "./server-chats";
import { ShareDialog } from "./share-dialog";
import { useServerSettings } from "./server-settings";
import type { Settings } from "./settings";
import { ShortcutHelp } from "./shortcut-help";
import { focusChats, Sidebar } from "./sidebar";
import { useTheme } from "./theme";
import { Button, IconButton } from "./ui/button";
import { useChatList } from "./use-chat-list";
import { useMedia } from "./use-media";

interface Props {
  settings: Settings;
  /** How many times the user has signed in; the first time counts where no sign-in is needed, too. */
  visit: number;
  /** Whether the user must sign in again: the page waits behind the sign-in. */
  away: boolean;
  /** Undefined where there is no token to forget. */
  signOut: (() => void) | undefined;
}

/** The whole page: the list of chats, one chat, its flow and the inspector. */
export function Page({ settings, visit, away, signOut }: Props) {
  const id = useChatInAddress();
  const served = useServerSettings(settings, visit);
  const server = useMemo(() => new ServerChats(settings), [settings]);
  const wide = useMedia("(min-width: 48rem)");
  const [listed, setListed] = useState(wide);
  const [panels, setPanels] = useState({ flow: matchMedia("(min-width: 80rem)").matches, inspector: false });
  const [sharing, setSharing] = useState<ChatEntry>();
  const [overlay, setOverlay] = useState<"palette" | "help">();
  const [theme, toggleTheme] = useTheme();
  const [states, setStates] = useState<Record<string, ChatState>>({});
  const [changes, setChanges] = useState(0);
  const list = useChatList(server, changes + visit);
  const tell = useCallback((chat: string, state: ChatState) => {
    setStates((all) => ({ ...all, [chat]: state }));
    setChanges((count) => count + 1);
  }, []);
  const hasFlow = states[id ?? ""]?.hasFlow ?? false;
  const title = list.chats.find((chat) => chat.id === id)?.title;
  const [wasWide, setWasWide] = useState(wide);
  if (wide !== wasWide) {
    // Not in an effect: the list would cover what has the focus, and take it away, before it is hidden.
    setWasWide(wide);
    setListed(wide);
  }
  /** On a narrow screen the list lies over everything else, which cannot be reached meanwhile. */
  const covered = listed && !wide;

  useEffect(() => {
    if (!id) showChat(openNewChat(), "replace");
  }, [id]);
  useEffect(() => {
    document.title = title ?? settings.title;
  }, [title, settings]);
  useEffect(() => {
    const listener = (event: KeyboardEvent) => {
      if (away) return;
      const writing = event.target instanceof HTMLElement && event.target.matches("input, textarea, select");
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        setOverlay("palette");
      } else if ((event.ctrlKey || event.metaKey) && event.shiftKey && event.key.toLowerCase() === "o") {
        event.preventDefault();
        create();
      } else if (event.key === "?" && !writing) {
        setOverlay("help");
      } else if (event.key === "Escape" && !wide && !document.querySelector('[role="dialog"], [role="menu"], nav li input')) {
        setListed(false);
      }
    };
    // Before the elements do: a tooltip that is open would take the Escape.
    addEventListener("keydown", listener, { capture: true });
    return () => removeEventListener("keydown", listener, { capture: true });
  });

  function open(chat: string): void {
    showChat(chat);
    if (!wide) setListed(false);
  }

  function create(): void {
    open(openNewChat());
    focusPrompt();
  }

  function remove(chat: ChatEntry): void {
    list.remove(chat);
    setStates(({ [chat.id]: _, ...others }) => others);
    if (chat.id === id) showChat(openNewChat());
    if (covered) focusChats(); // the entry that has the focus goes away
    else focusPrompt();
  }

  /** Two panels at once leave the chat too little room unless the screen is very wide. */
  function togglePanel(name: PanelName, wanted?: boolean): void {
    const room = matchMedia("(min-width: 96rem)").matches;
    setPanels((all) => {
      const shown = wanted ?? !all[name];
      return { ...(shown && !room ? { flow: false, inspector: false } : all), [name]: shown };
    });
  }

  async function exportChat({ id: chat, title: name }: ChatEntry, format: "json" | "markdown"): Promise<void> {
    const text = (await server.export(chat, format)) ?? localExport(chat, format);
    const [ending, type] = format === "json" ? ["json", "application/json"] : ["md", "text/markdown"];
    saveFile(`${name.replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, 60)}.${ending}`, text, type);
  }

  if (!id) return null;
  const running = Object.keys(states).filter((chat) => states[chat]?.busy);
  const mounted = running.includes(id) ? running : [...running, id];
  const own = [
    { name: "New chat", run: create, shortcut: "Ctrl+Shift+O" },
    { name: listed ? "Hide the list of chats" : "Show the list of chats", run: () => setListed(!listed) },
    ...(settings.inspector
      ? [{ name: panels.inspector ? "Close the inspector" : "Open the inspector", run: () => togglePanel("inspector") }]
      : []),
    ...(hasFlow ? [{ name: panels.flow ? "Hide the flow" : "Show the flow", run: () => togglePanel("flow") }] : []),
    { name: theme === "dark" ? "Use light mode" : "Use dark mode", run: toggleTheme },
    ...(signOut ? [{ name: "Sign out", run: signOut }] : []),
    { name: "Keyboard shortcuts", run: () => setOverlay("help"), shortcut: "?" },
  ];
  const commands: PaletteCommand[] = [
    ...own.map((command) => ({ ...command, group: "Commands" as const })),
    ...list.chats.map((chat) => ({ name: chat.title, group: "Chats" as const, run: () => open(chat.id) })),
  ];
  return (
    <Tooltip.Provider delayDuration={400}>
      <div className="flex h-full flex-col">
        <a inert={covered} className="sr-only focus:not-sr-only focus:absolute focus:top-2 focus:left-2 focus:z-50 focus:rounded-lg focus:bg-canvas focus:px-4 focus:py-2" href="#prompt">
          Skip to the input
        </a>
        <header inert={covered} className="screen-only flex h-14 shrink-0 items-center gap-1 border-b border-line px-3">
          <IconButton icon={PanelLeft} label="Chats" aria-expanded={listed} onClick={() => setListed(!listed)} />
          {!listed && <IconButton icon={SquarePen} label="New chat" shortcut="Ctrl+Shift+O" onClick={create} />}
          {settings.logo && <img src={settings.logo} alt="" className="ml-2 h-6 max-w-24 object-contain" />}
          <h1 className="ml-2 min-w-0 flex-1 truncate text-left text-sm font-semibold" dir="auto">{title ?? settings.title}</h1>
          <IconButton icon={Command} label="Commands" shortcut="Ctrl+K" className="max-sm:hidden" onClick={() => setOverlay("palette")} />
          {hasFlow && (
            <IconButton icon={Workflow} label="Flow" aria-pressed={panels.flow} onClick={() => togglePanel("flow")} />
          )}
          {settings.inspector && (
            <IconButton icon={CodeXml} label="Inspector" aria-pressed={panels.inspector} onClick={() => togglePanel("inspector")} />
          )}
          <IconButton
            icon={theme === "dark" ? Sun : Moon}
            label={theme === "dark" ? "Light mode" : "Dark mode"}
            onClick={toggleTheme}
          />
        </header>
        <div className="flex min-h-0 flex-1">
          {covered && (
            <div className="fixed inset-0 z-20 bg-black/40" data-backdrop="chats" aria-hidden="true" onClick={() => setListed(false)} />
          )}
          {listed && (
            <Sidebar
              over={covered}
              chats={list.chats}
              current={id}
              running={running}
              query={list.query}
              setQuery={list.setQuery}
              open={open}
              create={create}
              rename={list.rename}
              pin={list.pin}
              remove={remove}
              share={settings.share ? setSharing : undefined}
              signOut={signOut}
              export={(chat, format) => void exportChat(chat, format)}
            />
          )}
          <div className="contents" inert={covered}>
            {mounted.map((chat) => (
              <Chat
                key={chat}
                id={chat}
                settings={settings}
                server={server}
                served={served}
                visit={visit}
                shown={chat === id}
                panels={panels}
                closePanel={(name) => togglePanel(name, false)}
                tell={tell}
              />
            ))}
          </div>
        </div>
        {list.removed && (
          <div
            role="status"
            className="screen-only fixed top-16 left-1/2 z-40 flex max-w-[calc(100%-2rem)] -translate-x-1/2 items-center gap-4 rounded-xl border border-line bg-canvas py-2 pr-2 pl-4 text-sm shadow-float"
          >
            <span className="truncate">
              Deleted: <bdi>{list.removed.title}</bdi>
            </span>
            <Button
              onClick={() => {
                const restored = list.removed;
                restored?.undo();
                if (restored) open(restored.id);
              }}
            >
              Undo
            </Button>
          </div>
        )}
        {sharing && (
          <ShareDialog
            chat={sharing}
            server={server}
            close={() => {
              setSharing(undefined);
              setChanges((count) => count + 1);
            }}
          />
        )}
        <CommandPalette open={overlay === "palette"} close={() => setOverlay(undefined)} commands={commands} />
        <ShortcutHelp inspector={settings.inspector} open={overlay === "help"} close={() => setOverlay(undefined)} />
      </div>
    </Tooltip.Provider>
  );
}

/** Export a chat that only this browser has. */
function localExport(id: string, format: "json" | "markdown"): string {
  const { messages } = loadChat(id);
  if (format === "json") return JSON.stringify({ id, messages }, null, 2);
  return messages.map((message) => `## ${message.role === "user" ? "You" : "Assistant"}\n\n${textOf(message)}\n`).join("\n");
}
