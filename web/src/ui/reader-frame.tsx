import { Moon, Sun } from "lucide-react";
import { Tooltip } from "radix-ui";
import type { ReactNode } from "react";
import { useTheme } from "../theme";
import { IconButton } from "./button";

/** The frame of something that can be read and nothing else: its title, what it is, and the theme. */
export function ReaderFrame({ title, note, children }: { title: ReactNode; note: string; children: ReactNode }) {
  const [theme, toggleTheme] = useTheme();
  return (
    <Tooltip.Provider delayDuration={400}>
      <div className="flex h-full flex-col">
        <header className="screen-only flex h-14 shrink-0 items-center gap-3 border-b border-line px-4">
          <div className="min-w-0 flex-1 truncate text-sm font-semibold">{title}</div>
          <span className="rounded-full bg-muted px-3 py-1 text-xs font-medium whitespace-nowrap text-soft">{note}</span>
          <IconButton
            icon={theme === "dark" ? Sun : Moon}
            label={theme === "dark" ? "Light mode" : "Dark mode"}
            onClick={toggleTheme}
          />
        </header>
        <main className="flex min-h-0 min-w-0 flex-1 flex-col">{children}</main>
      </div>
    </Tooltip.Provider>
  );
}
