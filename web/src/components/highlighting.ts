import type { HighlighterCore, LanguageInput } from "shiki/core";

/** One piece of a line of code, with its colours as custom properties. */
export interface Token {
  text: string;
  style: Record<string, string> | undefined;
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
/** Longer blocks stay plain: highlighting runs on the main thread. */
const MAXIMUM_LENGTH = 30_000;

let loading: Promise<HighlighterCore> | undefined;

/** Return the tokens of each line; undefined if the language is unknown or the code is too long. */
export async function highlight(code: string, language: string): Promise<Token[][] | undefined> {
  const name = OTHER_NAMES[language.toLowerCase()] ?? language.toLowerCase();
  const load = LANGUAGES[name];
  if (!load || code.length > MAXIMUM_LENGTH) return undefined;
  loading ??= start();
  const highlighter = await loading;
  await highlighter.loadLanguage(load());
  const { tokens } = highlighter.codeToTokens(code, { lang: name, themes: THEMES, defaultColor: false });
  return tokens.map((line) => line.map((token) => ({ text: token.content, style: token.htmlStyle })));
}

/** Load shiki with its JavaScript engine: the policy of the page allows no WebAssembly. */
async function start(): Promise<HighlighterCore> {
  const [{ createHighlighterCore }, { createJavaScriptRegexEngine }] = await Promise.all([
    import("shiki/core"),
    import("shiki/engine/javascript"),
  ]);
  return createHighlighterCore({
    themes: [import("shiki/themes/github-light-high-contrast.mjs"), import("shiki/themes/github-dark-high-contrast.mjs")],
    langs: [],
    engine: createJavaScriptRegexEngine({ forgiving: true }),
  });
}
