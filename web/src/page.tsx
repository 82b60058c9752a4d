import { useEffect, useMemo, useState } from "react";
import { showChat, useChatInAddress } from "./address";
import { Chat } from "./chat";
import { loadChats, newChatId, onListChanged, removeChat, type ChatEntry } from "./chats";
import { Icon } from "./components/icons";
import { FrameTap } from "./frames";
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
  const tap = useMemo(() => new FrameTap(), [id]);

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

  if (!id) return null;
  return (
    <div className="page">
      <a className="skip" href="#prompt">
        Skip to the message
      </a>
      <header className="bar">
        <button
          type="button"
          className="icon-button"
          aria-label="Chats"
          aria-expanded={listed}
          onClick={() => setListed(!listed)}
        >
          <Icon name="menu" />
        </button>
        <span className="bar-title">{settings.title}</span>
        <button type="button" className="icon-button" aria-label="New chat" onClick={() => open(newChatId())}>
          <Icon name="add" />
        </button>
        {settings.auth && <TokenField />}
        <button
          type="button"
          className="icon-button"
          aria-label="Flow"
          aria-pressed={showFlow}
          onClick={() => setShowFlow(!showFlow)}
        >
          <Icon name="flow" />
        </button>
        <button
          type="button"
          className="icon-button"
          aria-label="Inspector"
          aria-pressed={inspecting}
          onClick={() => setInspecting(!inspecting)}
        >
          <Icon name="inspect" />
        </button>
        <button
          type="button"
          className="icon-button"
          aria-label={theme === "dark" ? "Light colours" : "Dark colours"}
          onClick={toggleTheme}
        >
          <Icon name={theme === "dark" ? "sun" : "moon"} />
        </button>
      </header>
      <div className="columns">
        {listed && <ChatList chats={chats} current={id} open={open} />}
        <Chat
          key={id}
          id={id}
          settings={settings}
          tap={tap}
          showFlow={showFlow}
          inspecting={inspecting}
          closeInspector={() => setInspecting(false)}
        />
      </div>
    </div>
  );
}

function ChatList({ chats, current, open }: { chats: ChatEntry[]; current: string; open: (id: string) => void }) {
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
              onClick={() => open(chat.id)}
            >
              {chat.title}
            </button>
            <button
              type="button"
              className="icon-button"
              aria-label={`Delete ${chat.title}`}
              onClick={() => {
                removeChat(chat.id);
                if (chat.id === current) open(newChatId());
              }}
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
