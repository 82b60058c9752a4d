import { useLayoutEffect, useState } from "react";
import { local } from "./storage";

const KEY = "usechat:theme";
export type Theme = "light" | "dark";

/** Dark or light: the system's preference until the user chooses. */
export function useTheme(): [Theme, () => void] {
  const [theme, setTheme] = useState<Theme>(
    () =>
      (local.get(KEY) as Theme | null) ??
      (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"),
  );
  useLayoutEffect(() => {
    document.documentElement.dataset["theme"] = theme;
  }, [theme]);
  function toggle(): void {
    const next = theme === "dark" ? "light" : "dark";
    local.set(KEY, next);
    setTheme(next);
  }
  return [theme, toggle];
}
