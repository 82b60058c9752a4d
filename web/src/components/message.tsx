import { ChevronLeft, ChevronRight, Pencil, RotateCw, ThumbsDown, ThumbsUp } from "lucide-react";
import type { UIMessage } from "ai";
import { Fragment, lazy, memo, Suspense, use, useState, type ReactNode } from "react";
import { CLIENT_TOOLS } from "../client-tools";
import { nodeLabels } from "../flow/graph";
import { isData, isTool, isUnfinished, speakerOf, textOf, toolName, type Part, type ToolPart } from "../parts";
import { Button, IconButton } from "../ui/button";
import { AppHostContext, appOf } from "./app-host";
import { Attachment } from "./attachment";
import { CopyButton } from "./copy-button";
import { DataPart, isDrawnElsewhere } from "./data";
import { inWords } from "./duration";
import { Markdown } from "./markdown";
import { focusPrompt } from "./prompt-input";
import { QUESTION } from "./question";
import { Reasoning } from "./reasoning";
import { Sources, type Source } from "./sources";
import { Tool, ToolGroup, type AnswerCall, type Approve } from "./tool";
import { useGrowingField } from "../use-growing-field";
import { useLateTurn } from "./turns";

export type Rating = "good" | "bad";

/** What can be done with a message; without edit, regenerate and approve it can only be read. */
export interface MessageActions {
  approve: Approve | undefined;
  /** Give a call that waits for the page its output; undefined if none does. */
  answer: AnswerCall | undefined;
  /** Send a changed message; returns whether it was sent. */
  edit: ((message: UIMessage, text: string) => boolean) | undefined;
  regenerate: ((message: UIMessage) => void) | undefined;
  setEditing: (id: string | undefined) => void;
  /** Show another version of a message; undefined if the server keeps none. */
  showVersion: ((id: string) => void) | undefined;
  /** Rate an answer; undefined if the server takes no ratings. */
  rate: ((message: UIMessage, rating: Rating | undefined) => void) | undefined;
}

interface DrawnProps extends MessageActions {
  message: UIMessage;
  /** Whether the message is still being received. */
  streaming: boolean;
  /** Whether more of the message is to come, now or when it is resumed: its calls run. */
  live: boolean;
  editing: boolean;
  /** What went wrong while the answer arrived, as an element. */
  failure: ReactNode;
  /** Whether the user has stopped it. */
  stopped: boolean;
  /** The versions of this message, itself included, separated by spaces: a text, so that equal ones are equal. */
  versions: string;
  rating: Rating | undefined;
}

interface Props extends DrawnProps {
  /** How many messages follow this one. */
  followers: number;
}

/** Few chats have apps. */
const ToolApp = lazy(async () => ({ default: (await import("./tool-app")).ToolApp }));

/** The messages at the end of a chat that are drawn at once. Those above are out of sight when a chat is opened. */
const IN_SIGHT = 6;

/** A message of a chat. When a long chat is opened, its end is drawn at once, and the rest bit by bit from there. */
export function Message({ followers, ...props }: Props) {
  const drawn = useLateTurn(followers < IN_SIGHT);
  return drawn ? <DrawnMessage {...props} /> : <article className="message min-h-24" />;
}

const DrawnMessage = memo(function DrawnMessage(props: DrawnProps) {
  return props.message.role === "user" ? <UserMessage {...props} /> : <AssistantMessage {...props} />;
});

const ACTIONS =
  "actions flex items-center gap-0.5 opacity-100 transition-opacity lg:can-hover:opacity-0 lg:group-hover/message:opacity-100 lg:group-focus-within/message:opacity-100";

/** Hidden while an answer arrives. A rule of the style sheet does it: as a property it would draw every message anew. */
const WHEN_IDLE = "when-idle";

function UserMessage({ message, editing, edit, setEditing, versions, showVersion }: DrawnProps) {
  const text = textOf(message);
  if (editing && edit) {
    return (
      <EditForm
        text={text}
        cancel={() => setEditing(undefined)}
        submit={(changed) => {
          if (!edit(message, changed)) return;
          setEditing(undefined);
          focusPrompt();
        }}
      />
    );
  }
  const files = message.parts.filter((part) => part.type === "file");
  return (
    <article className="message user group/message -mb-3 flex flex-col items-end gap-1 lg:can-hover:-mb-6" aria-label="You">
      {files.length > 0 && (
        <div className="mb-1 flex max-w-[85%] flex-wrap justify-end gap-2">
          {files.map((file, index) => (
            <Attachment key={index} file={file} />
          ))}
        </div>
      )}
      {text && (
        <p className="max-w-[85%] rounded-3xl bg-muted px-4 py-2.5 break-words whitespace-pre-wrap" dir="auto">
          {text}
        </p>
      )}
      <div className="screen-only flex items-center">
        <div className={ACTIONS}>
          {text && <CopyButton text={text} label="Copy message" />}
          {edit && (
            <IconButton small icon={Pencil} label="Edit" className={WHEN_IDLE} onClick={() => setEditing(message.id)} />
          )}
        </div>
        <Versions id={message.id} versions={versions} show={showVersion} />
      </div>
    </article>
  );
}

function EditForm({ text, submit, cancel }: { text: string; submit: (text: string) => void; cancel: () => void }) {
  const [value, setValue] = useState(text);
  const field = useGrowingField(value);
  const send = () => value.trim() && submit(value);
  return (
    <form
      className="edit space-y-2 rounded-3xl bg-muted p-3"
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
      onKeyDown={(event) => {
        if (event.key === "Escape") {
          event.preventDefault();
          cancel();
        }
      }}
    >
      <textarea
        autoFocus
        ref={field}
        rows={1}
        className="max-h-64 w-full resize-none bg-transparent px-2 py-1 outline-none"
        aria-label="Edit message"
        dir="auto"
        value={value}
        onFocus={(event) => event.target.setSelectionRange(value.length, value.length)}
        onChange={(event) => setValue(event.target.value)}
        onKeyDown={(event) => {
          if (event.key === "Enter" && !event.shiftKey && !event.nativeEvent.isComposing) {
            event.preventDefault();
            send();
          }
        }}
      />
      <div className="flex justify-end gap-2">
        <Button onClick={cancel}>Cancel</Button>
        <Button type="submit" kind="primary" className={WHEN_IDLE} disabled={!value.trim()}>
          Send
        </Button>
      </div>
    </form>
  );
}

function AssistantMessage(props: DrawnProps) {
  const { message, streaming, failure, live, approve, answer } = props;
  const { parts } = message;
  const dividers = speakerDividers(parts);
  const sources = parts.filter(isSource);
  const questions = questionsIn(parts);
  const lastStep = parts.findLastIndex((part) => part.type === "step-start");
  // A question has a step of its own: the hook posts as soon as the calls of the last step have outputs. Calls of earlier
  // steps run on while the question waits.
  const asks = answer !== undefined && parts.slice(lastStep + 1).some(waitsForPerson);
  const waits = asks || (approve !== undefined && parts.some((part) => isTool(part) && part.state === "approval-requested"));
  const empty = !streaming && !failure && !parts.some(isShown);
  const isAnswered = (index: number) => index > lastStep && waitsForPerson(parts[index]!) && answer !== undefined;
  const draw = (index: number) => {
    const part = parts[index]!;
    return (
      <AssistantPart
        key={index}
        id={`${message.id}:${index}`}
        part={part}
        look={lookOf(part)}
        streaming={streaming && isStreaming(part, index === parts.length - 1)}
        live={(live || asks) && isUnfinished(part)}
        question={isTool(part) ? questions.get(part.toolCallId) : undefined}
        // Only to parts that need them: the others would be drawn again when these change.
        approve={isTool(part) && part.state === "approval-requested" ? approve : undefined}
        answer={isAnswered(index) ? answer : undefined}
      />
    );
  };
  return (
    <article className="message assistant group/message flex min-w-0 flex-col gap-4" aria-label="Assistant">
      {groupsOf(parts, dividers, (index) => isGrouped(parts[index]!) && !isAnswered(index)).map((group) => (
        <Fragment key={group[0]}>
          {dividers[group[0]!] !== undefined && <Divider speaker={dividers[group[0]!]!} />}
          {isGrouped(parts[group[0]!]!) && !isAnswered(group[0]!) ? (
            <ToolGroup id={`${message.id}:${group[0]}`} calls={group.map((index) => parts[index] as ToolPart)} live={live || asks} draw={(number) => draw(group[number]!)} />
          ) : (
            !questions.has(questionOfCall(parts[group[0]!]!)?.toolCallId ?? "") && draw(group[0]!)
          )}
        </Fragment>
      ))}
      {empty && <p className="text-sm text-soft">The answer is empty.</p>}
      {sources.length > 0 && <Sources sources={sources} />}
      {failure}
      {!streaming && <Footer {...props} waits={waits} />}
    </article>
  );
}

/** What can be done with an answer. While it waits for the user, it can only be copied. */
function Footer({ message, stopped, waits, regenerate, versions, showVersion, rating, rate }: DrawnProps & { waits: boolean }) {
  return (
    <>
      {stopped && <Stopped regenerate={regenerate && (() => regenerate(message))} />}
      <div className="-mt-2 flex flex-wrap items-center gap-x-3">
        <div className="screen-only -ml-2 flex items-center pointer-coarse:-ml-3">
          <div className={ACTIONS}>
            {textOf(message) && <CopyButton text={textOf(message)} />}
            {regenerate && !waits && !stopped && (
              <IconButton small icon={RotateCw} label="Regenerate" className={WHEN_IDLE} onClick={() => regenerate(message)} />
            )}
            {rate && !waits && <Thumbs rating={rating} rate={(chosen) => rate(message, chosen)} />}
          </div>
          <Versions id={message.id} versions={versions} show={showVersion} />
        </div>
        <Usage metadata={message.metadata} />
      </div>
    </>
  );
}

/** The notice that there is no more of an answer because the user has stopped it. */
export function Stopped({ regenerate }: { regenerate: (() => void) | undefined }) {
  return (
    <p className="screen-only flex items-center gap-1 text-sm text-soft" role="status">
      You stopped this answer
      {regenerate && (
        <>
          {" · "}
          <button type="button" className="rounded px-1 font-medium text-accent hover:underline pointer-coarse:min-h-10" onClick={regenerate}>
            Regenerate
          </button>
        </>
      )}
    </p>
  );
}

/** The name of who speaks from here on. */
function Divider({ speaker }: { speaker: string }) {
  return (
    <div
      className="flex items-center gap-3 text-xs font-medium text-soft before:h-px before:w-4 before:bg-line after:h-px after:flex-1 after:bg-line"
      role="separator"
      aria-label={`Speaker: ${speaker}`}
    >
      <span>{speaker}</span>
    </div>
  );
}

/**
 * The places of the parts, in groups that are drawn together: calls that follow each other are one. What is not shown does
 * not part them, and a new speaker does.
 */
function groupsOf(parts: Part[], dividers: (string | undefined)[], isCall: (index: number) => boolean): number[][] {
  const groups: number[][] = [];
  let open = false;
  parts.forEach((part, index) => {
    if (dividers[index] !== undefined) open = false;
    if (isCall(index)) {
      if (open) groups.at(-1)!.push(index);
      else groups.push([index]);
      open = true;
    } else if (dividers[index] !== undefined || isDrawn(part)) {
      groups.push([index]);
      open = false;
    }
  });
  return groups;
}

/** Whether a call may be one of a group: what a person decides, or has decided, stands alone, and so does an app. */
function isGrouped(part: Part): part is ToolPart {
  return isTool(part) && appOf(part) === undefined && toolName(part) !== QUESTION && part.state !== "approval-requested" && part.state !== "output-denied";
}

function Thumbs({ rating, rate }: { rating: Rating | undefined; rate: (rating: Rating | undefined) => void }) {
  return (["good", "bad"] as const).map((each) => (
    <IconButton
      key={each}
      small
      icon={each === "good" ? ThumbsUp : ThumbsDown}
      label={each === "good" ? "Good answer" : "Bad answer"}
      aria-pressed={rating === each}
      onClick={() => rate(rating === each ? undefined : each)}
    />
  ));
}

/** ‹ 2/3 ›: which version of a message is shown, and the way to the others. */
function Versions({ id, versions, show }: {
  id: string;
  versions: string;
  show: ((id: string) => void) | undefined;
}) {
  const all = versions.split(" ");
  const at = all.indexOf(id);
  if (!show || all.length < 2 || at < 0) return null;
  const go = (step: number) => show(all[at + step] as string);
  return (
    <span className="flex items-center text-xs text-soft tabular-nums" role="group" aria-label="Versions">
      <IconButton
        small
        icon={ChevronLeft}
        label="Earlier version"
        className={WHEN_IDLE}
        disabled={at === 0}
        onClick={() => go(-1)}
      />
      {at + 1}/{all.length}
      <IconButton
        small
        icon={ChevronRight}
        label="Later version"
        className={WHEN_IDLE}
        disabled={at === all.length - 1}
        onClick={() => go(1)}
      />
    </span>
  );
}

/** Tokens and duration, where the message's metadata has them. */
function Usage({ metadata }: { metadata: unknown }) {
  if (typeof metadata !== "object" || metadata === null) return null;
  const { usage, durationMs } = metadata as { usage?: Record<string, unknown>; durationMs?: unknown };
  const tokens = usage?.["totalTokens"] ?? sum(usage?.["inputTokens"], usage?.["outputTokens"]);
  const facts = [
    typeof tokens === "number" && `${tokens.toLocaleString("en")} tokens`,
    typeof durationMs === "number" && inWords(durationMs),
  ].filter(Boolean);
  return facts.length > 0 ? <span className="text-xs text-soft">{facts.join(" · ")}</span> : null;
}

function sum(one: unknown, other: unknown): number | undefined {
  return typeof one === "number" && typeof other === "number" ? one + other : undefined;
}

interface PartProps {
  id: string;
  part: Part;
  /** What can change of the part, as text. The hook copies parts that have not changed, and changes others in place. */
  look: string;
  streaming: boolean;
  live: boolean;
  /** The question of another part that this call waits for, as text. */
  question: string | undefined;
  approve: Approve | undefined;
  answer: AnswerCall | undefined;
}

/** A part of an answer. Of thousands of them, only those that have changed are drawn again. */
const AssistantPart = memo(function AssistantPart({ id, part, streaming, live, question, approve, answer }: PartProps) {
  if (part.type === "text") return part.text ? <Markdown text={part.text} streaming={streaming} /> : null;
  if (part.type === "reasoning") return part.text ? <Reasoning id={id} text={part.text} streaming={streaming} /> : null;
  if (part.type === "file" || part.type === "reasoning-file") return <Attachment file={part} />;
  if (isTool(part)) {
    const asked: unknown = question === undefined ? undefined : JSON.parse(question);
    const tool = <Tool id={id} part={part} live={live} asked={asked} approve={approve} answer={answer} />;
    return showsApp(part, live) ? <WithApp part={part}>{tool}</WithApp> : tool;
  }
  if (isData(part)) return <DataPart type={part.type} data={part.data} />;
  return null;
}, sameProps);

/** Whether a call shows the app of its tool: while it runs, and once it went well. */
function showsApp(part: ToolPart, live: boolean): boolean {
  return appOf(part) !== undefined && (part.state === "output-available" || (part.state === "input-available" && live));
}

function WithApp({ part, children }: { part: ToolPart; children: ReactNode }) {
  const host = use(AppHostContext);
  if (!host) return children;
  return (
    <div className="space-y-2">
      {children}
      <Suspense>
        <ToolApp part={part} app={appOf(part)!} host={host} />
      </Suspense>
    </div>
  );
}

function sameProps({ part: _, ...one }: PartProps, { part: __, ...other }: PartProps): boolean {
  return (Object.keys(one) as (keyof typeof one)[]).every((key) => one[key] === other[key]);
}

/** A text and an address may have megabytes: they are taken as they are. */
function lookOf(part: Part): string {
  if ("text" in part) return part.text;
  return "url" in part ? part.url : JSON.stringify(part);
}

function isStreaming(part: Part, last: boolean): boolean {
  if (part.type === "text") return part.state === "streaming";
  return part.type === "reasoning" && last && part.state !== "done";
}

/** Whether a person must give the output of a call: neither the provider nor the page runs the tool. */
function waitsForPerson(part: Part): boolean {
  return isTool(part) && part.state === "input-available" && !part.providerExecuted && !(toolName(part) in CLIENT_TOOLS);
}

function isSource(part: Part): part is Source {
  return part.type === "source-url" || part.type === "source-document";
}

function isShown(part: Part): boolean {
  if (part.type === "text" || part.type === "reasoning") return part.text.trim() !== "";
  return part.type !== "step-start";
}

/** Whether something is drawn at the place of a part: sources and the data of a flow are drawn elsewhere. */
function isDrawn(part: Part): boolean {
  return isShown(part) && !isSource(part) && !(isData(part) && isDrawnElsewhere(part.type));
}

/** The questions that data parts have for calls of the same message, as text, by the id of the call. */
function questionsIn(parts: Part[]): Map<string, string> {
  const calls = new Set(parts.filter(isTool).map((part) => part.toolCallId));
  const asked = parts.flatMap((part) => questionOfCall(part) ?? []);
  return new Map(asked.filter(({ toolCallId }) => calls.has(toolCallId)).map((each) => [each.toolCallId, each.question]));
}

function questionOfCall(part: Part): { toolCallId: string; question: string } | undefined {
  if (!isData(part) || part.type !== `data-${QUESTION}`) return undefined;
  const { toolCallId, value } = (part.data ?? {}) as { toolCallId?: unknown; value?: unknown };
  return typeof toolCallId === "string" ? { toolCallId, question: JSON.stringify(value) ?? "null" } : undefined;
}

/** The names of speakers to show between parts: at the start of the step in which the speaker changes, or at its first part. */
function speakerDividers(parts: Part[]): (string | undefined)[] {
  const dividers: (string | undefined)[] = parts.map(() => undefined);
  let current: string | undefined;
  let step: number | undefined;
  const labels = nodeLabels(parts);
  parts.forEach((part, index) => {
    if (part.type === "step-start") step = index;
    const speaker = speakerOf(part, labels);
    // What is drawn before somebody is named was said by the speaker before.
    if (speaker === undefined && isDrawn(part)) step = undefined;
    if (speaker === undefined) return;
    if (speaker !== current) dividers[step ?? index] = speaker;
    current = speaker;
    step = undefined;
  });
  return dividers;
}
