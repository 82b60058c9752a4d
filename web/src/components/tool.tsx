import { Ban, Check, ChevronRight, CircleAlert, CircleHelp, LoaderCircle, Wrench, type LucideIcon } from "lucide-react";
import { Collapsible } from "radix-ui";
import { useState, type ReactNode } from "react";
import { isUnfinished, pretty, toolName, toolTitle, type ToolPart } from "../parts";
import { Button } from "../ui/button";
import { classes } from "../ui/classes";
import { asText, asTitle } from "../words";
import { consentIn, type Consent } from "./consent";
import { CopyButton } from "./copy-button";
import { inWords, useDuration } from "./duration";
import { focusPrompt } from "./prompt-input";
import { Question, QUESTION, questionIn } from "./question";
import { Value } from "./value";

interface State {
  text: string;
  icon: LucideIcon;
  colour: string;
  /** Whether the text is shown: of a call that went well, the icon says enough. */
  quiet?: boolean;
}

const BUSY = { icon: LoaderCircle, colour: "text-busy" };

/** The states of a tool part in all three majors, as shown on the page. */
const STATES: Record<string, State> = {
  "input-streaming": { text: "Preparing", ...BUSY },
  "input-available": { text: "Running", ...BUSY },
  "approval-responded": { text: "Answered", icon: Check, colour: "text-soft", quiet: true },
  "output-available": { text: "Done", icon: Check, colour: "text-good", quiet: true },
  "output-error": { text: "Failed", icon: CircleAlert, colour: "text-bad" },
  "output-denied": { text: "Denied", icon: Ban, colour: "text-soft" },
};

/** Of an approval or a question that nobody can answer any more, or not here. */
const NOT_ANSWERED: State = { text: "Not answered", icon: CircleHelp, colour: "text-soft" };
/** Of a call in an answer that was broken off. */
const NO_RESULT: State = { text: "No result", icon: Ban, colour: "text-soft" };

export interface Approve {
  (approvalId: string, approved: boolean, reason?: string): void;
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

/**
 * One tool call. A call that waits for a person is a card with what it asks; any other is a line, which opens to its input
 * and its output or error.
 */
export function Tool({ id, part, live, asked, approve, answer }: Props) {
  const name = toolName(part);
  const approval = approvalIn(part);
  const question = asked ?? (name === QUESTION ? part.input : undefined);
  if (part.state === "approval-requested" && approve) {
    return (
      <Card part={part}>
        <Approval consent={consentIn(name, toolTitle(part), part.input)} decide={(approved, reason) => approve(part.approval.id, approved, reason)} />
      </Card>
    );
  }
  if (answer && approval) {
    return (
      <Card part={part}>
        <Approval
          consent={consentIn(approval.name, asTitle(approval.name), approval.input)}
          decide={(approved, reason) => answer(part, { approved, reason })}
        />
      </Card>
    );
  }
  if (answer) {
    return (
      <Card part={part}>
        {question === undefined && <Values input={part.input} />}
        <Question id={id} title={name === QUESTION ? "The agent" : toolTitle(part)} asked={question} answer={(output) => answer(part, output)} />
      </Card>
    );
  }
  const isQuestion = question !== undefined || approval !== undefined;
  return <Line part={part} live={live} isQuestion={isQuestion} inShort={questionIn(question) ?? inShort(approval?.input ?? part.input)} />;
}

function Card({ part, children }: { part: ToolPart; children: ReactNode }) {
  return (
    <div className="tool overflow-hidden rounded-xl border border-line bg-surface p-4" data-state-of-tool={part.state}>
      {children}
    </div>
  );
}

function Line({ part, live, isQuestion, inShort: summary }: { part: ToolPart; live: boolean; isQuestion: boolean; inShort: ReactNode }) {
  const [open, setOpen] = useState<boolean>();
  const took = useDuration(part.toolCallId, isUnfinished(part) && live);
  const state = stateOf(part, live, isQuestion);
  const shown = open ?? part.state === "output-error";
  const title = toolName(part) === QUESTION ? "Question" : toolTitle(part);
  const note = noteOf(part);
  return (
    <Collapsible.Root
      className="tool overflow-hidden rounded-xl border border-line bg-canvas"
      data-state-of-tool={part.state}
      open={shown}
      onOpenChange={setOpen}
    >
      <Collapsible.Trigger className={LINE}>
        <StateIcon {...state} />
        <span className="max-w-[60%] shrink-0 truncate font-medium">{title}</span> <Badge {...state} />
        {note && <Badge text={note.badge} colour="text-bad" />}
        <span className="min-w-0 flex-1 truncate text-left text-soft" dir="auto">{!shown && summary}</span>
        <Took milliseconds={took} />
        <Arrow open={shown} />
      </Collapsible.Trigger>
      <Collapsible.Content className="space-y-3 border-t border-line px-3 py-3">
        {note && <p className="text-sm text-soft">{note.sentence}</p>}
        {part.input !== undefined && <Field title="Input" value={part.input} />}
        {part.state === "output-available" && <Field title="Output" value={part.output} />}
        {part.state === "output-error" && <Field title="Error" value={part.errorText} />}
      </Collapsible.Content>
    </Collapsible.Root>
  );
}

/** What Genkit marks in the metadata of a call: an output in spite of a denial, or one that was matched by order alone. */
function noteOf(part: ToolPart): { badge: string; sentence: string } | undefined {
  if (isAfterDenial(part)) return { badge: "Returned an output", sentence: "This call was denied. Its tool was told so, and returned the output below: only this says whether it did its work." };
  if (marksOf(part)?.["matchedBy"] === "order") return { badge: "Matched by order", sentence: "The calls of this tool have no ids, so the output may belong to another one of them." };
  return undefined;
}

function marksOf(part: ToolPart): Record<string, unknown> | undefined {
  return (part as { toolMetadata?: { genkit?: Record<string, unknown> } }).toolMetadata?.genkit;
}

/** Whether this is what the tool of a denied call returned. Nothing tells whether it did its work. */
function isAfterDenial(part: ToolPart): boolean {
  return marksOf(part)?.["outputAfterDenial"] === true;
}

const LINE = "flex min-h-11 w-full items-center gap-2 px-3 text-sm hover:bg-surface";

interface GroupProps {
  id: string;
  calls: ToolPart[];
  /** Whether the answer with these calls is still received. */
  live: boolean;
  /** Draws the call with this number. */
  draw: (number: number) => ReactNode;
}

/** Calls that follow each other, none of which waits for a person: one line, which opens to all of them. */
export function ToolGroup({ id, calls, live, draw }: GroupProps) {
  const [open, setOpen] = useState(false);
  const current = live ? calls.findLast(isUnfinished) : undefined;
  const took = useDuration(`group ${id}`, current !== undefined);
  const failures = calls.filter((call) => call.state === "output-error").length;
  if (calls.length === 1) return draw(0);
  return (
    <Collapsible.Root className="tools overflow-hidden rounded-xl border border-line bg-canvas" open={open} onOpenChange={setOpen}>
      <Collapsible.Trigger className={LINE}>
        {current ? <StateIcon {...BUSY} /> : <Wrench aria-hidden="true" className="icon size-4 shrink-0 text-soft" />}
        <span className="truncate font-medium">{current ? `${toolTitle(current)}…` : `Used ${calls.length} tools`}</span>{" "}
        {current && <Badge {...STATES["input-available"]!} />}
        {failures > 0 && <Badge text={failures === 1 ? "1 failed" : `${failures} failed`} colour="text-bad" />}
        <span className="flex-1" />
        <Took milliseconds={took} />
        <Arrow open={open} />
      </Collapsible.Trigger>
      <Collapsible.Content className="space-y-2 border-t border-line p-2">{open && calls.map((_, number) => draw(number))}</Collapsible.Content>
    </Collapsible.Root>
  );
}

function StateIcon({ icon: Icon, colour }: Pick<State, "icon" | "colour">) {
  return <Icon aria-hidden="true" className={classes("icon size-4 shrink-0", colour, Icon === LoaderCircle && "animate-spin")} />;
}

/** What a call does, or why it came to nothing. A quiet state is only read aloud. */
function Badge({ text, colour, quiet = false }: Omit<State, "icon">) {
  if (quiet) return <span className="sr-only">{text}</span>;
  return <span className={classes("rounded-full bg-muted px-2 py-0.5 text-xs font-medium whitespace-nowrap", colour)}>{text}</span>;
}

function Took({ milliseconds }: { milliseconds: number | undefined }) {
  return <span className="text-xs whitespace-nowrap text-soft tabular-nums">{milliseconds !== undefined && inWords(milliseconds)}</span>;
}

function Arrow({ open }: { open: boolean }) {
  return <ChevronRight aria-hidden="true" className={classes("icon size-4 shrink-0 text-soft transition-transform", open && "rotate-90")} />;
}

function stateOf(part: ToolPart, live: boolean, isQuestion: boolean): State {
  const { state } = part;
  if (isAfterDenial(part)) return STATES["output-denied"]!;
  if (state === "approval-requested") return NOT_ANSWERED;
  if (isUnfinished(part) && !live) return isQuestion ? NOT_ANSWERED : NO_RESULT;
  return STATES[state] ?? { text: state, icon: CircleHelp, colour: "text-soft" };
}

/** The simple values of an input with their names, so that two calls of one tool can be told apart. */
function inShort(input: unknown): ReactNode {
  if (typeof input !== "object" || input === null) return typeof input === "string" ? input : "";
  const simple = Object.entries(input).filter(([, value]) => ["string", "number", "boolean"].includes(typeof value));
  return simple.map(([name, value], index) => (
    <span key={name}>
      {index > 0 && " · "}
      {asTitle(name)}: <span className="text-ink">{asText(value)}</span>
    </span>
  ));
}

/** What a call that waits for a person would do: each value of its input with its name. */
function Values({ input }: { input: unknown }) {
  if (input === undefined || (typeof input === "object" && input !== null && Object.keys(input).length === 0)) return null;
  return (
    <div className="mb-3 max-h-80 overflow-auto rounded-lg border border-line bg-canvas px-3 py-2" tabIndex={0} role="group" aria-label="Input">
      <Value value={input} />
    </div>
  );
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

/** A call that needs consent: what would run, with which values, the two answers, and those that its system adds. */
function Approval({ consent, decide }: { consent: Consent; decide: (approved: boolean, reason?: string) => void }) {
  const press = (approved: boolean, reason?: string) => {
    decide(approved, reason);
    focusPrompt(); // the button that has the focus goes away
  };
  const { heading, body, values, yes, no, choices } = consent;
  return (
    <div role="group" aria-label={`Allow: ${heading}`} className="text-sm">
      <p className="flex items-center gap-2 pb-3 text-base font-semibold">
        <CircleHelp aria-hidden="true" className="icon size-4 shrink-0 text-busy" />
        <span dir="auto">{heading}</span>
      </p>
      {body !== undefined && <p className="pb-3 whitespace-pre-wrap" dir="auto">{body}</p>}
      <Values input={values} />
      <div className="flex flex-wrap items-center justify-end gap-2">
        <span className="mr-auto text-soft">{values === undefined ? "" : "This needs your approval."}</span>
        <Button onClick={() => press(false)}>{no}</Button>
        {choices.map(({ label, reason, description }) => (
          <Button key={reason} title={description} onClick={() => press(true, reason)}>
            {label}
          </Button>
        ))}
        {yes !== undefined && (
          <Button kind="primary" onClick={() => press(true)}>
            {yes}
          </Button>
        )}
      </div>
    </div>
  );
}

/** The call that needs approval, if the server asks by a call of its own: AI SDK 5 has no approvals. */
function approvalIn(part: ToolPart): { name: string; input: unknown } | undefined {
  if (toolName(part) !== "approval" || typeof part.input !== "object" || part.input === null) return undefined;
  const { approvalId, toolName: name, input } = part.input as Record<string, unknown>;
  return typeof approvalId === "string" && typeof name === "string" ? { name, input } : undefined;
}
