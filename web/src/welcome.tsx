import { ArrowUpRight } from "lucide-react";
import type { Agent } from "./server-settings";
import type { Settings } from "./settings";
import { classes } from "./ui/classes";

/** The empty state: what this agent does, and questions to begin with. */
export function Welcome({ settings, agent, send }: {
  settings: Settings;
  agent: Agent | undefined;
  send: (text: string) => void;
}) {
  const title = settings.hasTitle ? settings.title : (agent?.name ?? settings.title);
  const described = settings.description || agent?.description;
  return (
    <div className="m-auto w-full py-8 text-center">
      <h2 className="text-3xl font-semibold tracking-tight">{title}</h2>
      <p className="mx-auto mt-3 max-w-lg text-soft">
        {described || "Send a message to begin. The inspector shows every frame of the answer."}
      </p>
      {settings.suggestions.length > 0 && (
        <div className={classes("mt-8 grid auto-rows-fr gap-3 text-left", settings.suggestions.length > 1 ? "sm:grid-cols-2" : "mx-auto max-w-sm")}>
          {settings.suggestions.map((text) => (
            <button
              key={text}
              type="button"
              className="group flex min-h-14 items-center justify-between gap-3 rounded-2xl border border-line px-4 py-3 text-left text-sm transition-colors hover:bg-surface"
              onClick={() => send(text)}
            >
              <span className="min-w-0 break-words" dir="auto">{text}</span>
              <ArrowUpRight aria-hidden="true" className="size-4 shrink-0 text-soft group-hover:text-accent" />
            </button>
          ))}
        </div>
      )}
    </div>
  );
}
