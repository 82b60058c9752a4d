import { ExternalLink } from "lucide-react";
import { useEffect, useId, useRef, type FormEvent, type KeyboardEvent } from "react";
import { session } from "../storage";
import { Button } from "../ui/button";
import { classes } from "../ui/classes";
import { asTitle } from "../words";
import { focusPrompt } from "./prompt-input";
import { isWebAddress } from "./sources";

/** The name of the calls that ask a person something, and of the data part that has the question of another call. */
export const QUESTION = "interrupt";

type Schema = Record<string, unknown>;

/** One value that a question asks for. */
interface Field {
  /** The property of the answer; undefined if the value is the answer. */
  name: string | undefined;
  kind: "text" | "number" | "boolean" | "choice" | "choices" | "json" | "free";
  required: boolean;
  schema: Schema;
  options: Option[];
}

interface Option {
  label: string;
  value: unknown;
}

/** Any answer: a text, or JSON for an agent that wants an object or a list. */
const FREE: Field = { name: undefined, kind: "free", required: true, schema: { title: "Your answer" }, options: [] };

interface Props {
  /** What the typed answer is kept by. */
  id: string;
  /** Who waits for the answer, if the question does not say what it asks. */
  title: string;
  asked: unknown;
  answer: (output: unknown) => void;
}

/**
 * What an agent asks in a call that waits for an output of the page: a form, a web page to visit, a choice, or anything.
 * The answer to an elicitation of MCP has the shape of its result. Any other answer is the value itself.
 */
export function Question({ id, title, asked, answer }: Props) {
  const form = useKeptAnswer(id);
  const { mode, url, error } = objectOf(asked);
  const elicited = mode === "form" || mode === "url";
  const choices = choicesIn(asked);
  const fields = mode === "url" || choices.length > 0 ? [] : (fieldsIn(asked) ?? (mode === "form" ? [] : [FREE]));
  const give = (output: unknown) => {
    form.forget();
    answer(output);
    focusPrompt(); // the element that has the focus goes away
  };
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const content = answerOf(event.currentTarget, fields);
    give(mode === "url" ? { action: "accept" } : mode === "form" ? { action: "accept", content } : content);
  };
  return (
    <form
      ref={form.ref}
      className="space-y-4 text-sm"
      aria-label="Answer the question"
      onChange={form.keep}
      onSubmit={submit}
    >
      <h3 className="text-base font-semibold whitespace-pre-wrap" dir="auto">
        {questionIn(asked) ?? `${title} waits for an answer.`}
      </h3>
      {typeof error === "string" && (
        <p className="text-bad" role="alert" dir="auto">
          {error}
        </p>
      )}
      {typeof url === "string" && isWebAddress(url) && (
        <a href={url} target="_blank" rel="noreferrer" className="flex items-center gap-2 break-all text-accent underline">
          {url}
          <ExternalLink aria-hidden="true" className="icon size-4 shrink-0" />
        </a>
      )}
      {fields.map((field, index) => (
        <Input key={index} name={String(index)} field={field} />
      ))}
      <div className="flex flex-wrap justify-end gap-2">
        {elicited && <Button kind="quiet" onClick={() => give({ action: "decline" })}>Decline</Button>}
        {choices.map(({ label, value }, index) => (
          <Button key={index} onClick={() => give(value)}>
            {label}
          </Button>
        ))}
        {choices.length === 0 && (
          <Button type="submit" kind="primary">
            {mode === "url" ? "Done" : "Answer"}
          </Button>
        )}
      </div>
    </form>
  );
}

/** Keep what is typed into a form until it is sent: another chat may be looked at meanwhile, or the page reloaded. */
function useKeptAnswer(id: string) {
  const ref = useRef<HTMLFormElement>(null);
  const key = `usechat:answer:${id}`;
  useEffect(() => {
    const kept = JSON.parse(session.get(key) ?? "null") as [string, string][] | null;
    if (!kept || !ref.current) return;
    for (const field of ref.current.querySelectorAll<HTMLInputElement>("[name]")) {
      const values = kept.filter(([name]) => name === field.name).map(([, value]) => value);
      if (field.type === "checkbox") field.checked = values.includes(field.value);
      else field.value = values[0] ?? "";
    }
  }, [key]);
  return {
    ref,
    keep: () => ref.current && session.set(key, JSON.stringify([...new FormData(ref.current)])),
    forget: () => session.remove(key),
  };
}

/** The text of a question, where it has one. */
export function questionIn(asked: unknown): string | undefined {
  if (typeof asked === "string") return asked;
  const { message, question, prompt, text, title } = objectOf(asked);
  return [message, question, prompt, text, title].find((each) => typeof each === "string");
}

const BOX = "block min-h-9 w-full rounded-lg border border-line bg-canvas px-3 py-1.5 pointer-coarse:min-h-11 pointer-coarse:text-base";
const CHECK = "flex min-h-8 items-center gap-2 pointer-coarse:min-h-11";

function Input({ field, name }: { field: Field; name: string }) {
  const { kind, required, schema, options } = field;
  const id = useId();
  const note = typeof schema["description"] === "string" ? schema["description"] : undefined;
  const common = { id, name, "aria-describedby": note === undefined ? undefined : `${id}note` };
  const title = <span dir="auto">{labelOf(field)}</span>;
  const explained = note !== undefined && (
    <p id={`${id}note`} className="text-xs text-soft" dir="auto">
      {note}
    </p>
  );
  if (kind === "boolean") {
    return (
      <div>
        <label className={CHECK}>
          <input {...common} type="checkbox" defaultChecked={schema["default"] === true} className="size-4" />
          {title}
        </label>
        <div className="pl-6">{explained}</div>
      </div>
    );
  }
  if (kind === "choices") {
    const chosen = Array.isArray(schema["default"]) ? schema["default"] : [];
    return (
      <fieldset aria-describedby={common["aria-describedby"]}>
        <legend className="font-medium">{title}</legend>
        {explained}
        {options.map(({ label, value }, index) => (
          <label key={index} className={CHECK}>
            <input type="checkbox" name={name} value={index} defaultChecked={chosen.includes(value)} className="size-4" />
            <span dir="auto">{label}</span>
          </label>
        ))}
      </fieldset>
    );
  }
  return (
    <div className="flex flex-col gap-1.5">
      <label htmlFor={id} className="font-medium">
        {title}
        {!required && <span className="font-normal text-soft"> (optional)</span>}
      </label>
      {explained}
      {kind === "choice" ? (
        <select {...common} required={required} className={classes(BOX, "select")} defaultValue={indexOf(options, schema["default"])}>
          <option value="">Choose…</option>
          {options.map(({ label }, index) => (
            <option key={index} value={index}>
              {label}
            </option>
          ))}
        </select>
      ) : kind === "free" || kind === "json" ? (
        <textarea {...common} required={required} rows={2} dir="auto" className={BOX} onKeyDown={sendOnEnter} />
      ) : (
        <input {...common} {...limitsOf(field)} required={required} dir="auto" className={BOX} defaultValue={defaultOf(schema)} />
      )}
    </div>
  );
}

function sendOnEnter(event: KeyboardEvent<HTMLTextAreaElement>): void {
  if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
  event.preventDefault();
  event.currentTarget.form?.requestSubmit();
}

/** What the browser checks before it submits the form. */
function limitsOf({ kind, schema }: Field) {
  const number = (key: string) => (typeof schema[key] === "number" ? schema[key] : undefined);
  if (kind === "number") {
    const step = typeOf(schema) === "integer" ? 1 : "any";
    return { type: "number", min: number("minimum"), max: number("maximum"), step };
  }
  const types: Record<string, string> = { email: "email", uri: "url", date: "date", "date-time": "datetime-local" };
  const type = types[String(schema["format"])] ?? "text";
  return { type, minLength: number("minLength"), maxLength: number("maxLength") };
}

/** The fields of the form whose schema the question has: of MCP (`requestedSchema`) or of AG-UI (`responseSchema`). */
function fieldsIn(asked: unknown): Field[] | undefined {
  const { requestedSchema, responseSchema } = objectOf(asked);
  const schema = objectOf(requestedSchema ?? responseSchema);
  if (typeof schema["properties"] === "object" || requestedSchema !== undefined) {
    const required = Array.isArray(schema["required"]) ? schema["required"] : [];
    const properties = Object.entries(objectOf(schema["properties"]));
    return properties.map(([name, each]) => fieldOf(name, objectOf(each), required.includes(name)));
  }
  return Object.keys(schema).length > 0 ? [fieldOf(undefined, schema, true)] : undefined;
}

function fieldOf(name: string | undefined, given: Schema, required: boolean): Field {
  const schema = withoutNull(given);
  const type = typeOf(schema);
  const several = type === "array" ? optionsOf(objectOf(schema["items"])) : [];
  if (several.length > 0) return { name, kind: "choices", required, schema, options: several };
  const options = optionsOf(schema);
  if (options.length > 0) return { name, kind: "choice", required, schema, options };
  return { name, kind: KINDS[type] ?? "json", required, schema, options };
}

const KINDS: Record<string, Field["kind"]> = { string: "text", number: "number", integer: "number", boolean: "boolean" };

/** The schema of a value that may also be null, as pydantic writes it: `anyOf` with the schema and null. */
function withoutNull(schema: Schema): Schema {
  const either = [schema["anyOf"], schema["oneOf"]].find(Array.isArray) as unknown[] | undefined;
  const others = (either ?? []).map(objectOf).filter((each) => each["type"] !== "null");
  const { anyOf: _, oneOf: __, ...rest } = schema;
  return either && others.length === 1 && others.length < either.length ? { ...rest, ...others[0] } : schema;
}

/** The type of a value; of several, the one that is not null. */
function typeOf({ type = "string" }: Schema): string {
  return String(Array.isArray(type) ? type.find((each) => each !== "null") : type);
}

function optionsOf(schema: Schema): Option[] {
  const { enum: values, enumNames: names, oneOf, anyOf } = schema;
  if (Array.isArray(values)) {
    return values.map((value, index) => ({ value, label: String((Array.isArray(names) && names[index]) || value) }));
  }
  const listed = (Array.isArray(oneOf) ? oneOf : Array.isArray(anyOf) ? anyOf : []).map(objectOf);
  return listed.every((each) => "const" in each) ? listed.map((each) => ({ value: each["const"], label: String(each["title"] ?? each["const"]) })) : [];
}

/** The answers to choose from, in a question that lists them without a schema. */
function choicesIn(asked: unknown): Option[] {
  const { options, choices } = objectOf(asked);
  const listed = Array.isArray(options) ? options : Array.isArray(choices) ? choices : [];
  const found = listed.map((each) => {
    const { label, title, value, id } = objectOf(each);
    if (["string", "number", "boolean"].includes(typeof each)) return { label: String(each), value: each };
    return { label: label ?? title, value: value ?? id ?? each };
  });
  return found.every((each): each is Option => typeof each.label === "string") ? found : [];
}

/** The answer in a form: an object of its values, or the value of its only field. Empty fields are left out. */
function answerOf(form: HTMLFormElement, fields: Field[]): unknown {
  const data = new FormData(form);
  const values = fields.map((field, index) => [field.name, valueOf(field, data.getAll(String(index)).map(String))] as const);
  if (fields.length === 1 && fields[0]?.name === undefined) return values[0]?.[1];
  return Object.fromEntries(values.filter(([, value]) => value !== undefined));
}

function valueOf({ kind, schema, options, required }: Field, given: string[]): unknown {
  const [text = ""] = given;
  if (kind === "boolean") return given.length > 0;
  if (kind === "choices" && (required || given.length > 0)) return given.map((index) => options[Number(index)]?.value);
  if (text === "" && (kind !== "text" || !required)) return undefined;
  if (kind === "choice") return options[Number(text)]?.value;
  if (kind === "number") return Number(text);
  if (kind === "text") return schema["format"] === "date-time" ? new Date(text).toISOString() : text;
  return kind === "json" || /^\s*[[{]/.test(text) ? jsonOr(text) : text;
}

/** The value of a text in JSON. Any other text stays a text. */
function jsonOr(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text;
  }
}

function labelOf({ name, schema }: Field): string {
  return typeof schema["title"] === "string" ? schema["title"] : name === undefined ? "Your answer" : asTitle(name);
}

function defaultOf({ default: value }: Schema): string | undefined {
  return typeof value === "string" || typeof value === "number" ? String(value) : undefined;
}

function indexOf(options: Option[], value: unknown): string {
  const index = options.findIndex((each) => each.value === value);
  return index < 0 ? "" : String(index);
}

function objectOf(value: unknown): Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : {};
}
