import { asTitle } from "../words";

/** A way to consent beside the plain one: what its button says, and the reason that it gives. */
export interface Choice {
  label: string;
  reason: string;
  description: string | undefined;
}

/** What a card that waits for consent shows: its heading, what would run, and the words of its buttons. */
export interface Consent {
  heading: string;
  body: string | undefined;
  values: unknown;
  /** What the plain yes is called; undefined where only the choices are answers. */
  yes: string | undefined;
  no: string;
  choices: Choice[];
}

/** The name of the calls in which a session of Agent Ops asks a person. */
const SESSION_QUESTION = "question";
/** The actions of Valet that approve one call: the plain yes. */
const ONCE = ["approve", "allow_once"];
const REFUSALS = ["deny", "cancel"];

const PLAIN = { body: undefined, yes: "Approve", no: "Deny", choices: [] };

/** Return what a call that needs consent asks: as a session of Agent Ops or a flow asks it, or else for its tool. */
export function consentIn(name: string, title: string, input: unknown): Consent {
  const { prompt, text, options } = objectOf(input);
  if (name === SESSION_QUESTION && typeof prompt === "object") return sessionPrompt(objectOf(prompt));
  if (name === SESSION_QUESTION && typeof text === "string") return question(text, textsIn(options));
  if (typeof prompt === "string") return { ...PLAIN, heading: prompt, values: undefined };
  return { ...PLAIN, heading: `${title}?`, values: input ?? {} };
}

function sessionPrompt(prompt: Record<string, unknown>): Consent {
  const actions = actionsIn(prompt["actions"]);
  const heading = textIn(prompt["title"]) ?? "The agent asks for your approval.";
  const body = textIn(prompt["body"]);
  if (prompt["type"] !== "approval") return { ...question(heading, actions.map(({ label }) => label)), body };
  const { toolId, params } = objectOf(prompt["context"]);
  const tool = typeof toolId === "string" ? { tool: asTitle(toolId) } : {};
  const labelOf = (ids: string[]) => actions.find(({ id }) => ids.includes(id))?.label;
  const choices = actions.filter(({ id }) => ![...ONCE, ...REFUSALS].includes(id));
  return {
    heading,
    body,
    values: { ...tool, ...objectOf(params) },
    yes: labelOf(ONCE) ?? PLAIN.yes,
    no: labelOf(REFUSALS) ?? PLAIN.no,
    choices: choices.map(({ id, label, description }) => ({ label, reason: id, description })),
  };
}

/** A question is answered with the words of an option; where it has none, with yes or no. */
function question(heading: string, options: string[]): Consent {
  const choices = [...new Set(options)].map((label) => ({ label, reason: label, description: undefined }));
  const words = choices.length > 0 ? { yes: undefined, no: "Decline" } : { yes: "Yes", no: "No" };
  return { heading, body: undefined, values: undefined, ...words, choices };
}

function actionsIn(value: unknown): { id: string; label: string; description: string | undefined }[] {
  const actions = (Array.isArray(value) ? value : []).map(objectOf).filter(({ id }) => typeof id === "string");
  return actions.map(({ id, label, description }) => ({
    id: String(id),
    label: textIn(label) ?? asTitle(String(id)),
    description: textIn(description),
  }));
}

function textsIn(value: unknown): string[] {
  return (Array.isArray(value) ? value : []).filter((each) => typeof each === "string");
}

function textIn(value: unknown): string | undefined {
  return typeof value === "string" && value ? value : undefined;
}

function objectOf(value: unknown): Record<string, unknown> {
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
}
