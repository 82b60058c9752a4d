import { Ban, Check, ChevronRight, CircleAlert, CircleHelp, LoaderCircle, type LucideIcon } from "lucide-react";
import { Collapsible } from "radix-ui";
import { useState } from "react";
import { isUnfinished, pretty, toolName, type ToolPart } from "../parts";
import { Button } from "../ui/button";
import { classes } from "../ui/classes";
import { CopyButton } from "./copy-button";
import { inWords, useDuration } from "./duration";
import { focusPrompt } from "./prompt-input";
import { Question, QUESTION, questionIn } from "./question";
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

const AWAITING_ANSWER: State = { text: "Awaiting your answer", icon: CircleHelp, colour: "text-busy" };
/** Of an approval or a question that nobody can answer any more, or not here. */
const NOT_ANSWERED: State = { text: "Not answered", icon: CircleHelp, colour: "text-soft" };
/** Of a call in an answer that was broken off. */
const NO_RESULT: State = { text: "No result", icon: Ban, colour: "text-soft" };

export interface Approve {
  (approvalId: string, approved: boolean): void;
}

export interface AnswerCall {
  (part: ToolPart, output: unknown): void;
}

interface Props {
  /** Of the part; the id of a call may occur in several messages. */
  id: string;
  part: ToolPart;
  /** Whether the answer with this call is still received. */
  live: boolean;
  /** What the agent asks in this call, where that is not its input. */
  asked: unknown;
  approve: Approve | undefined;
  answer: AnswerCall | undefined;
}

/** One tool call: its input, its output or error, and the approval buttons, or the form for its answer. */
export function Tool({ id, part, live, asked, approve, answer }: Props) {
  const asks = part.state === "approval-requested";
  const [open, setOpen] = useState<boolean>();
  const took = useDuration(part.toolCallId, isUnfinished(part) && live);
  const name = toolName(part);
  const approval = approvalIn(part);
  const question = asked ?? (name === QUESTION ? part.input : undefined);
  const waits = answer !== undefined;
  const { text, icon: Icon, colour } = stateOf(part, { live, waits, isQuestion: question !== undefined || approval !== undefined, approvable: approve !== undefined });
  const unexplained = asks && approve ? promptIn(part.input) === undefined : waits && question === undefined && !approval;
  const shown = open ?? (unexplained || part.state === "output-error");
  return (
    <Collapsible.Root
      className="tool overflow-hidden rounded-xl border border-line bg-canvas"
      data-state-of-tool={part.state}
      open={shown}
      onOpenChange={setOpen}
    >
      <Collapsible.Trigger className="flex min-h-11 w-full items-center gap-2 px-3 text-sm hover:bg-surface">
        <Icon aria-hidden="true" className={classes("icon size-4 shrink-0", colour, Icon === LoaderCircle && "animate-spin")} />
        <span className="max-w-[60%] shrink-0 truncate font-mono text-[0.8125rem]">{part.title ?? (name === QUESTION ? "question" : name)}</span>{" "}
        <span className={classes("rounded-full bg-muted px-2 py-0.5 text-xs font-medium whitespace-nowrap", colour)}>{text}</span>{" "}
        <span className="min-w-0 flex-1 truncate text-left text-soft" dir="auto">{!shown && !waits && (questionIn(question) ?? inShort(part.input))}</span>
        <span className="ml-auto text-xs whitespace-nowrap text-soft">{took !== undefined && inWords(took)}</span>
        <ChevronRight aria-hidden="true" className={classes("icon size-4 shrink-0 text-soft transition-transform", shown && "rotate-90")} />
      </Collapsible.Trigger>
      <Collapsible.Content className="space-y-3 border-t border-line px-3 py-3">
        {part.input !== undefined && <Field title="Input" value={part.input} />}
        {part.state === "output-available" && <Field title="Output" value={part.output} />}
        {part.state === "output-error" && <Field title="Error" value={part.errorText} />}
      </Collapsible.Content>
      {asks && approve && <Approval name={name} input={part.input} decide={(approved) => approve(part.approval.id, approved)} />}
      {waits && approval && <Approval {...approval} decide={(approved) => answer(part, { approved })} />}
      {waits && !approval && <Question id={id} name={name} asked={question} answer={(output) => answer(part, output)} />}
    </Collapsible.Root>
  );
}

interface Circumstances {
  live: boolean;
  waits: boolean;
  isQuestion: boolean;
  approvable: boolean;
}

function stateOf(part: ToolPart, { live, waits, isQuestion, approvable }: Circumstances): State {
  const { state } = part;
  if (waits) return AWAITING_ANSWER;
  if (state === "approval-requested" && !approvable) return NOT_ANSWERED;
  if (isUnfinished(part) && !live) return isQuestion ? NOT_ANSWERED : NO_RESULT;
  return STATES[state] ?? { text: state, icon: CircleHelp, colour: "text-soft" };
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

function Approval({ name, input, decide }: { name: string; input: unknown; decide: (approved: boolean) => void }) {
  const press = (approved: boolean) => {
    decide(approved);
    focusPrompt(); // the button that has the focus goes away
  };
  return (
    <div
      className="flex flex-wrap items-center gap-3 border-t border-line bg-surface px-3 py-3 text-sm"
      role="group"
      aria-label={`Allow ${name} to run?`}
    >
      <span className="mr-auto" dir="auto">
        {promptIn(input) ?? (
          <>
            Allow <b className="font-mono font-medium">{name}</b> to run with this input?
          </>
        )}
      </span>
      <span className="flex gap-2">
        <Button onClick={() => press(false)}>Deny</Button>
        <Button kind="primary" onClick={() => press(true)}>
          Approve
        </Button>
      </span>
    </div>
  );
}

/** The call that needs approval, if the server asks by a call of its own: AI SDK 5 has no approvals. */
function approvalIn(part: ToolPart): { name: string; input: unknown } | undefined {
  if (toolName(part) !== "approval" || typeof part.input !== "object" || part.input === null) return undefined;
  const { approvalId, toolName: name, input } = part.input as Record<string, unknown>;
  return typeof approvalId === "string" && typeof name === "string" ? { name, input } : undefined;
}

/** Return the question that a flow asks in its approval request, if it asks one. */
function promptIn(input: unknown): string | undefined {
  const prompt = typeof input === "object" && input !== null && "prompt" in input ? input.prompt : undefined;
  return typeof prompt === "string" ? prompt : undefined;
}
