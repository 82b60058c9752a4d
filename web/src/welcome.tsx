import { ChevronRight, MessageCircle } from "lucide-react";
import { useState, type ReactNode } from "react";
import type { Agent } from "./server-settings";
import type { Settings } from "./settings";
import { Button } from "./ui/button";
import { classes } from "./ui/classes";

/** How many suggestions are cards at first: more of them are read by nobody. */
const MOST = 4;

/** What stands above the input of an empty chat: who answers here, and what about. */
export function Greeting({ settings, agent, children }: {
  settings: Settings;
  agent: Agent | undefined;
  /** What went wrong, or happens. */
  children: ReactNode;
}) {
  const title = settings.hasTitle ? settings.title : (agent?.name ?? settings.title);
  return (
    <div className="mx-auto mt-auto flex w-full max-w-3xl flex-col items-center gap-3 px-4 pt-8 pb-6 text-center">
      {settings.logo && <img src={settings.logo} alt="" className="mb-1 h-12 max-w-40 object-contain" />}
      <h2 className="text-3xl font-semibold tracking-tight text-balance" dir="auto">{title}</h2>
      <p className="max-w-lg text-soft text-balance" dir="auto">
        {settings.description || agent?.description || "What can I help you with?"}
      </p>
      {children}
    </div>
  );
}

/** Questions to begin with, as cards below the input. */
export function Suggestions({ texts, send }: { texts: string[]; send: (text: string) => void }) {
  const [all, setAll] = useState(false);
  const cards = (all ? texts : texts.slice(0, MOST)).map(cardOf);
  return (
    <div role="group" aria-label="Suggestions" className="mx-auto mb-auto flex w-full max-w-3xl flex-col items-center gap-3 px-4 pt-2 pb-8">
      <div className={classes("grid w-full auto-rows-fr gap-3", cards.length > 1 ? "sm:grid-cols-2" : "max-w-sm")}>
        {cards.map(({ icon, title, message }) => (
          <button
            key={message}
            type="button"
            className="group flex items-center gap-3 rounded-2xl border border-line px-4 py-3 text-left text-sm transition-colors hover:border-soft/40 hover:bg-surface"
            onClick={() => send(message)}
          >
            <span aria-hidden="true" className="grid size-9 shrink-0 place-items-center rounded-xl bg-muted text-base text-soft group-hover:text-accent">
              {icon ?? <MessageCircle className="size-4" />}
            </span>
            <span className="min-w-0" dir="auto">
              <span className="line-clamp-2 font-medium break-words">{title}</span>
              {message !== title && <span className="block truncate text-soft">{message}</span>}
            </span>
          </button>
        ))}
      </div>
      {texts.length > cards.length && <Button kind="quiet" onClick={() => setAll(true)}>Show {texts.length - cards.length} more</Button>}
    </div>
  );
}

/** Messages to go on with, as buttons below the last answer. */
export function FollowUps({ texts, send }: { texts: string[]; send: (text: string) => void }) {
  return (
    <div role="group" aria-label="Suggestions" className="screen-only flex flex-wrap gap-2">
      {texts.map(cardOf).map(({ icon, title, message }) => (
        <Button key={message} className="max-w-full rounded-full" onClick={() => send(message)}>
          {icon && <span aria-hidden="true">{icon}</span>}
          <span className="truncate" dir="auto">{title}</span>
          <ChevronRight aria-hidden="true" className="icon size-4 shrink-0 text-soft" />
        </Button>
      ))}
    </div>
  );
}

interface Card {
  icon: string | undefined;
  title: string;
  message: string;
}

/** Read a suggestion: `Message`, `Title | Message`, or either of them after an emoji, which is its icon. */
function cardOf(text: string): Card {
  const [, icon, rest = text] = /^(\p{Extended_Pictographic}\S*)\s+(.+)$/su.exec(text) ?? [];
  const [title = rest, message = title] = rest.split(/\s+\|\s+/);
  return { icon, title, message };
}
