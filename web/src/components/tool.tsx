import { Collapsible } from "radix-ui";
import { useState } from "react";
import { pretty, toolName, type ToolPart } from "../parts";
import { Icon } from "./icons";
import { focusPrompt } from "./prompt-input";

/** The states of a tool part in all three majors, as shown on the page. */
const STATES: Record<string, string> = {
  "input-streaming": "Preparing",
  "input-available": "Running",
  "approval-requested": "Awaiting approval",
  "approval-responded": "Answered",
  "output-available": "Done",
  "output-error": "Failed",
  "output-denied": "Denied",
};

export interface Approve {
  (approvalId: string, approved: boolean): void;
}

/** One tool call: its input, its output or error, and the approval buttons. */
export function Tool({ part, approve }: { part: ToolPart; approve: Approve }) {
  const asks = part.state === "approval-requested";
  const [open, setOpen] = useState<boolean>();
  const name = toolName(part);
  return (
    <Collapsible.Root
      className="tool"
      data-state-of-tool={part.state}
      open={open ?? ((asks && !questionIn(part.input)) || part.state === "output-error")}
      onOpenChange={setOpen}
    >
      <Collapsible.Trigger className="fold">
        <Icon name="chevron" />
        <Icon name="tool" />
        <span className="tool-name">{part.title ?? name}</span>
        <span className="tool-state">{STATES[part.state] ?? part.state}</span>
      </Collapsible.Trigger>
      <Collapsible.Content className="tool-content">
        {part.input !== undefined && <Field title="Input" value={part.input} />}
        {part.state === "output-available" && <Field title="Output" value={part.output} />}
        {part.state === "output-error" && <Field title="Error" value={part.errorText} />}
      </Collapsible.Content>
      {asks && <Approval name={name} input={part.input} id={part.approval.id} approve={approve} />}
    </Collapsible.Root>
  );
}

function Field({ title, value }: { title: string; value: unknown }) {
  return (
    <>
      <div className="field-title">{title}</div>
      <pre className={title === "Error" ? "field error" : "field"} tabIndex={0} aria-label={title}>
        {pretty(value)}
      </pre>
    </>
  );
}

function Approval({ name, input, id, approve }: { name: string; input: unknown; id: string; approve: Approve }) {
  const question = questionIn(input);
  const decide = (approved: boolean) => {
    approve(id, approved);
    focusPrompt(); // the button that has the focus goes away
  };
  return (
    <div className="approval" role="group" aria-label={`Allow ${name} to run?`}>
      {question ? (
        <span>{question}</span>
      ) : (
        <span>
          Allow <b>{name}</b> to run with this input?
        </span>
      )}
      <button type="button" className="button primary" onClick={() => decide(true)}>
        Approve
      </button>
      <button type="button" className="button" onClick={() => decide(false)}>
        Deny
      </button>
    </div>
  );
}

/** Return the question that a flow asks in its approval request, if it asks one. */
function questionIn(input: unknown): string | undefined {
  const prompt = typeof input === "object" && input !== null && "prompt" in input ? input.prompt : undefined;
  return typeof prompt === "string" ? prompt : undefined;
}
