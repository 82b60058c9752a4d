import { Collapsible } from "radix-ui";
import { pretty } from "../parts";
import { Icon } from "./icons";

/** The data parts of a flow are drawn as a diagram beside the chat, not listed in it. */
const DRAWN = new Set(["data-flow-status", "data-flow-graph", "data-edge", "data-node-status"]);

/** A data part of the application's own. */
export function DataPart({ type, data }: { type: string; data: unknown }) {
  if (DRAWN.has(type)) return null;
  return (
    <Collapsible.Root className="data">
      <Collapsible.Trigger className="fold">
        <Icon name="chevron" />
        {type.slice("data-".length)}
      </Collapsible.Trigger>
      <Collapsible.Content>
        <pre className="field" tabIndex={0} aria-label={type}>
          {pretty(data)}
        </pre>
      </Collapsible.Content>
    </Collapsible.Root>
  );
}
