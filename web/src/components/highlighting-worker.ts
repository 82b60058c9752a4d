import { createHighlighterCore, type LanguageInput } from "shiki/core";
import { createJavaScriptRegexEngine } from "shiki/engine/javascript";
import { GROUP_LINES } from "./line-groups";

/** One piece of a line of code, with its colours as custom properties. */
export interface Token {
  text: string;
  style: Record<string, string> | undefined;
}

export interface HighlightRequest {
  id: number;
  code: string;
  language: string;
}

/** The tokens of a group of lines. */
export interface HighlightedGroup {
  id: number;
  group: number;
  lines: Token[][];
}

/** The languages that are highlighted; each is loaded when a block names it. */
const LANGUAGES: Record<string, () => LanguageInput> = {
  bash: () => import("shiki/langs/bash.mjs"),
  c: () => import("shiki/langs/c.mjs"),
  cpp: () => import("shiki/langs/cpp.mjs"),
  csharp: () => import("shiki/langs/csharp.mjs"),
  css: () => import("shiki/langs/css.mjs"),
  diff: () => import("shiki/langs/diff.mjs"),
  dockerfile: () => import("shiki/langs/dockerfile.mjs"),
  go: () => import("shiki/langs/go.mjs"),
  html: () => import("shiki/langs/html.mjs"),
  java: () => import("shiki/langs/java.mjs"),
  javascript: () => import("shiki/langs/javascript.mjs"),
  json: () => import("shiki/langs/json.mjs"),
  jsx: () => import("shiki/langs/jsx.mjs"),
  kotlin: () => import("shiki/langs/kotlin.mjs"),
  markdown: () => import("shiki/langs/markdown.mjs"),
  php: () => import("shiki/langs/php.mjs"),
  python: () => import("shiki/langs/python.mjs"),
  ruby: () => import("shiki/langs/ruby.mjs"),
  rust: () => import("shiki/langs/rust.mjs"),
  sql: () => import("shiki/langs/sql.mjs"),
  swift: () => import("shiki/langs/swift.mjs"),
  toml: () => import("shiki/langs/toml.mjs"),
  tsx: () => import("shiki/langs/tsx.mjs"),
  typescript: () => import("shiki/langs/typescript.mjs"),
  xml: () => import("shiki/langs/xml.mjs"),
  yaml: () => import("shiki/langs/yaml.mjs"),
};
const OTHER_NAMES: Record<string, string> = {
  "c++": "cpp",
  cs: "csharp",
  docker: "dockerfile",
  js: "javascript",
  md: "markdown",
  py: "python",
  rb: "ruby",
  rs: "rust",
  sh: "bash",
  shell: "bash",
  ts: "typescript",
  yml: "yaml",
  zsh: "bash",
};
const THEMES = { light: "github-light-high-contrast", dark: "github-dark-high-contrast" };

/** With the JavaScript engine: the policy of the page allows no WebAssembly. */
const loading = createHighlighterCore({
  themes: [import("shiki/themes/github-light-high-contrast.mjs"), import("shiki/themes/github-dark-high-contrast.mjs")],
  langs: [],
  engine: createJavaScriptRegexEngine({ forgiving: true }),
});

/** Send the tokens of the code, group by group; nothing if the language is unknown. */
addEventListener("message", async ({ data: { id, code, language } }: MessageEvent<HighlightRequest>) => {
  const name = OTHER_NAMES[language] ?? language;
  const load = LANGUAGES[name];
  if (!load) return;
  const highlighter = await loading;
  await highlighter.loadLanguage(load());
  const { tokens } = highlighter.codeToTokens(code, {
    lang: name,
    themes: THEMES,
    defaultColor: false,
    // Shiki gives up a line after half a second. On a slow processor the first line takes longer: it compiles the grammar.
    tokenizeTimeLimit: 0,
  });
  const lines = tokens.map((line) => line.map(({ content, htmlStyle }) => ({ text: content, style: htmlStyle })));
  for (let group = 0; group * GROUP_LINES < lines.length; group += 1) {
    const part = lines.slice(group * GROUP_LINES, (group + 1) * GROUP_LINES);
    postMessage({ id, group, lines: part } satisfies HighlightedGroup);
  }
});
