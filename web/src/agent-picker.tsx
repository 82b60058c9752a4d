import { Bot, Check, ChevronDown } from "lucide-react";
import { DropdownMenu } from "radix-ui";
import type { Agent } from "./server-settings";

interface Props {
  agents: Agent[];
  chosen: string;
  choose: (name: string) => void;
}

/** Which agent answers the next message, where the server offers several. */
export function AgentPicker({ agents, chosen, choose }: Props) {
  if (agents.length < 2) return null;
  return (
    <DropdownMenu.Root modal={false}>
      <DropdownMenu.Trigger
        aria-label={`Agent: ${chosen}`}
        className="inline-flex h-9 pointer-coarse:h-11 min-w-0 items-center gap-1.5 rounded-lg px-2.5 text-sm text-soft hover:bg-muted hover:text-ink aria-expanded:bg-muted aria-expanded:text-ink"
      >
        <Bot aria-hidden="true" className="icon size-4 shrink-0" />
        <span className="truncate">{chosen}</span>
        <ChevronDown aria-hidden="true" className="icon size-4 shrink-0" />
      </DropdownMenu.Trigger>
      <DropdownMenu.Portal>
        <DropdownMenu.Content
          align="start"
          side="top"
          sideOffset={8}
          collisionPadding={8}
          aria-label="Agents"
          className="z-50 max-h-[60dvh] w-72 max-w-[calc(100vw-1rem)] overflow-y-auto rounded-xl border border-line bg-canvas p-1 shadow-float"
        >
          <DropdownMenu.RadioGroup value={chosen} onValueChange={choose}>
            {agents.map(({ name, description }) => (
              <DropdownMenu.RadioItem
                key={name}
                value={name}
                className="flex cursor-default items-start gap-3 rounded-lg px-3 py-2 text-sm outline-none data-highlighted:bg-muted"
              >
                <span className="min-w-0 flex-1">
                  <span className="block truncate font-medium">{name}</span>
                  {description && <span className="line-clamp-2 text-soft">{description}</span>}
                </span>
                <DropdownMenu.ItemIndicator className="mt-0.5">
                  <Check aria-hidden="true" className="size-4 text-accent" />
                </DropdownMenu.ItemIndicator>
              </DropdownMenu.RadioItem>
            ))}
          </DropdownMenu.RadioGroup>
        </DropdownMenu.Content>
      </DropdownMenu.Portal>
    </DropdownMenu.Root>
  );
}
