/** The tools that this page runs itself when an agent calls them, by name. */
export const CLIENT_TOOLS: Record<string, () => unknown> = {
  browser_time: () => ({
    time: new Date().toLocaleTimeString("en-GB"),
    timeZone: Intl.DateTimeFormat().resolvedOptions().timeZone,
  }),
};
