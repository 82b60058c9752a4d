import { useCallback, useEffect, useState } from "react";
import { showChat, useChatInAddress } from "./address";
import { Chat, type ChatState } from "./chat";
import { loadChats, newChatId, onListChanged, removeChat, type ChatEntry } from "./chats";
import { Icon } from "./components/icons";
import type { Settings } from "./settings";
import { useTheme } from "./theme";
import { loadToken, saveToken } from "./token";

/** The whole page: the list of chats, one chat, its flow and the inspector. */
export function Page({ settings }: { settings: Settings }) {
  const id = useChatInAddress();
  const [chats, setChats] = useState<ChatEntry[]>(loadChats);
  const [listed, setListed] = useState(() => matchMedia("(min-width: 56rem)").matches);
  const [showFlow, setShowFlow] = useState(true);
  const [inspecting, setInspecting] = useState(false);
  const [theme, toggleTheme] = useTheme();
  const [states, setStates] = useState<Record<string, ChatState>>({});
  const tell = useCallback((chat: string, state: ChatState) => setStates((all) => ({ ...all, [chat]: state })), []);
  const hasFlow = states[id ?? ""]?.hasFlow ?? false;

  useEffect(() => onListChanged(() => setChats(loadChats())), []);
  useEffect(() => {
    if (!id) showChat(newChatId(), "replace");
  }, [id]);
  useEffect(() => {
    document.title = chats.find((chat) => chat.id === id)?.title ?? settings.title;
  }, [chats, id, settings]);

  function open(chat: string): void {
    showChat(chat);
    if (!matchMedia("(min-width: 56rem)").matches) setListed(false);
  }

  function remove(chat: string): void {
    removeChat(chat);
    setStates(({ [chat]: _, ...others }) => others);
    if (chat === id) open(newChatId());
  }

  if (!id) return null;
  const running = Object.keys(states).filter((chat) => states[chat]?.busy);
  const mounted = running.includes(id) ? running : [...running, id];
  return (
    <div className="page">
      <a className="skip" href="#prompt">
        Skip to the input
      </a>
      <header className="bar">
        <button
          type="button"
          className="icon-button"
          aria-label="Chats"
          title="Chats"
          aria-expanded={listed}
          onClick={() => setListed(!listed)}
        >
          <Icon name="menu" />
        </button>
        <span className="bar-title">{settings.title}</span>
        <button type="button" className="icon-button" aria-label="New chat" title="New chat" onClick={() => open(newChatId())}>
          <Icon name="add" />
        </button>
        {settings.auth && <TokenField />}
        {hasFlow && (
          <button
            type="button"
            className="icon-button"
            aria-label="Flow"
            title="Flow"
            aria-pressed={showFlow}
            onClick={() => setShowFlow(!showFlow)}
          >
            <Icon name="flow" />
          </button>
        )}
        <button
          type="button"
          className="icon-button"
          aria-label="Inspector"
          title="Inspector"
          aria-pressed={inspecting}
          onClick={() => setInspecting(!inspecting)}
        >
          <Icon name="inspect" />
        </button>
        <button
          type="button"
          className="icon-button"
          aria-label={theme === "dark" ? "Light mode" : "Dark mode"}
          title={theme === "dark" ? "Light mode" : "Dark mode"}
          onClick={toggleTheme}
        >
          <Icon name={theme === "dark" ? "sun" : "moon"} />
        </button>
      </header>
      <div className="columns">
        {listed && <ChatList chats={chats} current={id} running={running} open={open} remove={remove} />}
        {mounted.map((chat) => (
          <Chat
            key={chat}
            id={chat}
            settings={settings}
            shown={chat === id}
            showFlow={showFlow}
            inspecting={inspecting}
            closeInspector={() => setInspecting(false)}
            tell={tell}
          />
        ))}
      </div>
    </div>
  );
}

interface ListProps {
  chats: ChatEntry[];
  current: string;
  running: string[];
  open: (id: string) => void;
  remove: (id: string) => void;
}

function ChatList({ chats, current, running, open, remove }: ListProps) {
  return (
    <nav className="chat-list" aria-label="Chats">
      {chats.length === 0 && <p className="hint">No chats yet.</p>}
      <ul>
        {chats.map((chat) => (
          <li key={chat.id}>
            <button
              type="button"
              className="chat-entry"
              aria-current={chat.id === current ? "page" : undefined}
              title={chat.title}
              onClick={() => open(chat.id)}
            >
              {running.includes(chat.id) && <span className="dots" role="img" aria-label="Answering:" />}
              {chat.title}
            </button>
            <button
              type="button"
              className="icon-button"
              aria-label={`Delete ${chat.title}`}
              onClick={() => remove(chat.id)}
            >
              <Icon name="trash" />
            </button>
          </li>
        ))}
      </ul>
    </nav>
  );
}

function TokenField() {
  const [token, setToken] = useState(loadToken);
  return (
    <label className="token">
      <Icon name="key" />
      <input
        type="password"
        placeholder="Bearer token"
        aria-label="Bearer token"
        autoComplete="off"
        value={token}
        onChange={(event) => {
          setToken(event.target.value);
          saveToken(event.target.value);
        }}
      />
    </label>
  );
}
