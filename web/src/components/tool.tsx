import { Ban, Check, ChevronRight, CircleAlert, CircleHelp, LoaderCircle, type LucideIcon } from "lucide-react";
import { Collapsible } from "radix-ui";
import { useState } from "react";
import { pretty, toolName, type ToolPart } from "../parts";
import { Button } from "../ui/button";
import { classes } from "../ui/classes";
import { CopyButton } from "./copy-button";
import { inWords, useDuration } from "./duration";
import { focusPrompt } from "./prompt-input";
import { Value } from "./value";

interface State {
  text: string;
  icon: LucideIcon;
  colour: string;
}

const BUSY = { icon: LoaderCircle, colour: "text-busy" };

/** The states of a tool part in all three majors, as shown on the page. */
const STATES: Record<string, State> = {
  "input-streaming": { text: "Preparing", ...BUSY },
  "input-available": { text: "Running", ...BUSY },
  "approval-requested": { text: "Awaiting approval", icon: CircleHelp, colour: "text-busy" },
  "approval-responded": { text: "Answered", icon: Check, colour: "text-soft" },
  "output-available": { text: "Done", icon: Check, colour: "text-good" },
  "output-error": { text: "Failed", icon: CircleAlert, colour: "text-bad" },
  "output-denied": { text: "Denied", icon: Ban, colour: "text-soft" },
};

/** Of an approval that nobody can give any more, or not here. */
const NOT_ANSWERED: State = { text: "Not answered", icon: CircleHelp, colour: "text-soft" };

export interface Approve {
  (approvalId: string, approved: boolean): void;
}

/** One tool call: its input, its output or error, and the approval buttons. */
export function Tool({ part, approve }: { part: ToolPart; approve: Approve | undefined }) {
  const asks = part.state === "approval-requested";
  const running = part.state === "input-streaming" || part.state === "input-available";
  const [open, setOpen] = useState<boolean>();
  const took = useDuration(part.toolCallId, running);
  const name = toolName(part);
  const state = asks && !approve ? NOT_ANSWERED : STATES[part.state];
  const { text, icon: Icon, colour } = state ?? { text: part.state, icon: CircleHelp, colour: "text-soft" };
  const shown = open ?? ((asks && approve && !questionIn(part.input)) || part.state === "output-error");
  return (
    <Collapsible.Root
      className="tool overflow-hidden rounded-xl border border-line bg-canvas"
      data-state-of-tool={part.state}
      open={shown}
      onOpenChange={setOpen}
    >
      <Collapsible.Trigger className="flex min-h-11 w-full items-center gap-2 px-3 text-sm hover:bg-surface">
        <Icon aria-hidden="true" className={classes("icon size-4 shrink-0", colour, Icon === LoaderCircle && "animate-spin")} />
        <span className="max-w-[60%] shrink-0 truncate font-mono text-[0.8125rem]">{part.title ?? name}</span>{" "}
        <span className={classes("rounded-full bg-muted px-2 py-0.5 text-xs font-medium whitespace-nowrap", colour)}>{text}</span>{" "}
        <span className="min-w-0 flex-1 truncate text-left text-soft" dir="auto">{!shown && inShort(part.input)}</span>
        <span className="ml-auto text-xs whitespace-nowrap text-soft">{took !== undefined && inWords(took)}</span>
        <ChevronRight aria-hidden="true" className={classes("icon size-4 shrink-0 text-soft transition-transform", shown && "rotate-90")} />
      </Collapsible.Trigger>
      <Collapsible.Content className="space-y-3 border-t border-line px-3 py-3">
        {part.input !== undefined && <Field title="Input" value={part.input} />}
        {part.state === "output-available" && <Field title="Output" value={part.output} />}
        {part.state === "output-error" && <Field title="Error" value={part.errorText} />}
      </Collapsible.Content>
      {asks && approve && <Approval name={name} input={part.input} id={part.approval.id} approve={approve} />}
    </Collapsible.Root>
  );
}

/** The simple values of an input, so that two calls of one tool can be told apart. */
function inShort(input: unknown): string {
  if (typeof input !== "object" || input === null) return typeof input === "string" ? input : "";
  return Object.values(input)
    .filter((value) => ["string", "number", "boolean"].includes(typeof value))
    .join(" · ");
}

function Field({ title, value }: { title: string; value: unknown }) {
  return (
    <div role="group" aria-label={title}>
      <div className="flex items-center justify-between">
        <span className="text-xs font-medium text-soft">{title}</span>
        <CopyButton text={pretty(value)} label={`Copy ${title.toLowerCase()}`} />
      </div>
      <div
        className={classes("max-h-80 overflow-auto rounded-lg px-3 py-2", title === "Error" ? "bg-bad-surface text-bad" : "bg-surface")}
        tabIndex={0}
        role="group"
        aria-label={`${title} value`}
      >
        <Value value={value} />
      </div>
    </div>
  );
}

function Approval({ name, input, id, approve }: { name: string; input: unknown; id: string; approve: Approve }) {
  const question = questionIn(input);
  const decide = (approved: boolean) => {
    approve(id, approved);
    focusPrompt(); // the button that has the focus goes away
  };
  return (
    <div
      className="flex flex-wrap items-center gap-3 border-t border-line bg-surface px-3 py-3 text-sm"
      role="group"
      aria-label={`Allow ${name} to run?`}
    >
      <span className="mr-auto" dir="auto">
        {question ?? (
          <>
            Allow <b className="font-mono font-medium">{name}</b> to run with this input?
          </>
        )}
      </span>
      <span className="flex gap-2">
        <Button onClick={() => decide(false)}>Deny</Button>
        <Button kind="primary" onClick={() => decide(true)}>
          Approve
        </Button>
      </span>
    </div>
  );
}

/** Return the question that a flow asks in its approval request, if it asks one. */
function questionIn(input: unknown): string | undefined {
  const prompt = typeof input === "object" && input !== null && "prompt" in input ? input.prompt : undefined;
  return typeof prompt === "string" ? prompt : undefined;
}
