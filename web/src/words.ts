/** A name of a program as a person would write it: `search_flights` and `searchFlights` are "Search flights". */
export function asTitle(name: string): string {
  const words = name
    .replace(/([a-z\d])([A-Z])/g, "$1 $2")
    .replace(/([A-Z])([A-Z][a-z])/g, "$1 $2")
    .split(/[\s_.:/-]+/)
    .filter(Boolean)
    .map((word) => (/^[A-Z][a-z]/.test(word) ? word.toLowerCase() : word));
  const text = words.join(" ");
  return text.charAt(0).toUpperCase() + text.slice(1) || name;
}

/** A name that may be one of a program, which then is in words: "Party planner" stays, `party_planner` does not. */
export function asName(name: string): string {
  return /^[a-z][\w.:/-]*$/.test(name) ? asTitle(name) : name;
}

/** A simple value as a person would write it. */
export function asText(value: unknown): string {
  if (typeof value === "boolean") return value ? "Yes" : "No";
  if (value === null || value === undefined) return "–";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** A host without what says nothing: `www.` and `en.`. */
export function withoutPrefix(host: string): string {
  return host.replace(/^(?:(?:www|en)\.)+(?=[^.]+\.)/, "");
}
