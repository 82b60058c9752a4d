import type { UIMessage } from "ai";
import { Moon, Sun } from "lucide-react";
import { Tooltip } from "radix-ui";
import { useEffect, useState } from "react";
import { Conversation } from "./components/conversation";
import { Message } from "./components/message";
import type { Settings } from "./settings";
import { useTheme } from "./theme";
import { IconButton } from "./ui/button";

interface Shared {
  title: string;
  messages: UIMessage[];
}

const READ_ONLY = {
  approve: undefined,
  edit: undefined,
  regenerate: undefined,
  showVersion: undefined,
  rate: undefined,
  setEditing: () => undefined,
};

/** A chat that somebody shared by a link: it can be read, and nothing else. */
export function SharedChat({ settings, token }: { settings: Settings; token: string }) {
  const [theme, toggleTheme] = useTheme();
  const [shared, setShared] = useState<Shared>();
  const [failure, setFailure] = useState<string>();
  useEffect(() => {
    const address = settings.api.replace(/[^/]*$/, `shared/${encodeURIComponent(token)}`);
    fetch(address)
      .then(async (response) => {
        if (response.ok) setShared((await response.json()) as Shared);
        else setFailure("This link does not lead to a chat, or its chat is not shared any more.");
      })
      .catch(() => setFailure("The server cannot be reached. Reload the page to try again."));
  }, [settings, token]);
  useEffect(() => {
    document.title = shared?.title ?? settings.title;
  }, [shared, settings]);
  return (
    <Tooltip.Provider delayDuration={400}>
      <div className="flex h-full flex-col">
        <header className="screen-only flex h-14 shrink-0 items-center gap-3 border-b border-line px-4">
          <h1 className="min-w-0 flex-1 truncate text-[0.9375rem] font-medium">{shared?.title ?? settings.title}</h1>
          <span className="rounded-full bg-muted px-3 py-1 text-xs font-medium whitespace-nowrap text-soft">Shared, read-only</span>
          <IconButton
            icon={theme === "dark" ? Sun : Moon}
            label={theme === "dark" ? "Light mode" : "Dark mode"}
            onClick={toggleTheme}
          />
        </header>
        <main className="flex min-h-0 min-w-0 flex-1 flex-col">
          <Conversation busy={false}>
            {failure && (
              <p role="alert" className="m-auto text-soft">
                {failure}
              </p>
            )}
            {shared?.messages.map((message) => (
              <Message
                key={message.id}
                message={message}
                streaming={false}
                busy={false}
                editing={false}
                failed={false}
                versions=""
                rating={undefined}
                {...READ_ONLY}
              />
            ))}
          </Conversation>
        </main>
      </div>
    </Tooltip.Provider>
  );
}
