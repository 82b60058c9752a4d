import tailwindcss from "@tailwindcss/vite";
import react from "@vitejs/plugin-react";
import ai from "ai/package.json" with { type: "json" };
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { defineConfig, type Plugin } from "vite";

/**
 * Parsers without the browser's. It would apply the inline styles of KaTeX's markup, which the policy forbids, and it is not
 * there in a worker.
 */
const parsers = Object.fromEntries(
  ["decode-named-character-reference", "hast-util-from-html-isomorphic"].map((name) => [
    name,
    new URL(`node_modules/${name}/index.js`, import.meta.url).pathname,
  ]),
);

/** KaTeX names each font in three formats; every browser that runs the page reads the first, woff2. */
const onlyWoff2 = {
  name: "only-woff2",
  enforce: "pre" as const,
  transform(code: string, id: string) {
    if (!id.includes("katex") || !id.endsWith(".css")) return undefined;
    return code.replace(/,url\([^)]+\.(?:woff|ttf)\) format\("(?:woff|truetype)"\)/g, "");
  },
};

/** Lays out diagrams in the order of their source: without this, an edge that leads back moves its node to the end. */
const inOrderOfSource = {
  name: "in-order-of-source",
  enforce: "pre" as const,
  transform(code: string, id: string) {
    if (!id.includes("/beautiful-mermaid/dist/")) return undefined;
    const order = '"elk.layered.considerModelOrder.strategy": "NODES_AND_EDGES",';
    if (!code.includes(order)) throw new Error("beautiful-mermaid has other options for its layout than those of 1.1.3");
    return code.replace(order, `${order} "elk.layered.cycleBreaking.strategy": "MODEL_ORDER",`);
  },
};

/**
 * Smaller grammars. JSX and TSX have that of JavaScript, but for the names of their scopes. C++ has a second one of 300 kB for the
 * bodies of macros: without it, their words and literals are coloured. Half of the first one is what it says several times.
 */
const smallGrammars = {
  name: "small-grammars",
  enforce: "pre" as const,
  transform(code: string, id: string) {
    const name = /\/langs\/dist\/([\w-]+)\.mjs$/.exec(id)?.[1];
    if (name === "jsx") return likeJavaScript(name, "js.jsx");
    if (name === "tsx") return likeJavaScript(name, "tsx");
    if (name === "cpp-macro") return "export default []";
    return name === "cpp" ? withoutRepetitions(withoutMacros(code)) : undefined;
  },
};

function likeJavaScript(name: string, suffix: string): string {
  return `import javascript from "./javascript.mjs";
const text = JSON.stringify(javascript.at(-1)).replace(/\\.js(?=[ "])/g, ".${suffix}");
export default [...javascript, { ...JSON.parse(text), name: "${name}", aliases: [] }];`;
}

function withoutMacros(code: string): string {
  const include = String.raw`{\"include\":\"source.cpp.embedded.macro\"}`;
  const embedded = String.raw`\"cpp-macro\",`;
  if (!code.includes(include) || !code.includes(embedded)) throw new Error("Shiki has another grammar of C++ than 4.6.0");
  const rules = ["control_flow_keywords", "language_constants", "number_literal", "string_context", "wordlike_operators"];
  const includes = rules.map((rule) => include.replace("source.cpp.embedded.macro", `#${rule}`));
  return code.replace(embedded, "").replace(include, includes.join());
}

/** Write each object and each long text that a grammar has several times once. In its place stands `{"$": number}`. */
function withoutRepetitions(code: string): string {
  const literal = /JSON\.parse\((".*")\)/.exec(code)?.[1];
  if (literal === undefined || literal.includes(String.raw`\"$\":`)) throw new Error("Shiki has another grammar of C++ than 4.6.0");
  const counts = new Map<string, number>();
  const shared: unknown[] = [];
  const numbers = new Map<string, number>();
  const count = (value: unknown): void => {
    if (!isLong(value)) return;
    const text = JSON.stringify(value);
    counts.set(text, (counts.get(text) ?? 0) + 1);
    if (typeof value === "object") Object.values(value).forEach(count);
  };
  const write = (value: unknown): unknown => {
    const text = isLong(value) ? JSON.stringify(value) : "";
    if ((counts.get(text) ?? 0) < 3) return inner(value);
    if (!numbers.has(text)) numbers.set(text, shared.push(inner(value)) - 1);
    return { $: numbers.get(text) };
  };
  const inner = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(write);
    if (typeof value !== "object" || value === null) return value;
    return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, write(each)]));
  };
  const grammar: unknown = JSON.parse(JSON.parse(literal));
  count(grammar);
  const written = JSON.stringify(JSON.stringify({ grammar: write(grammar), shared }));
  return `${code.replace(`JSON.parse(${literal})`, () => `read(packed.grammar)`).replace("const lang", `const packed = JSON.parse(${written});
const lang`)}
function read(value) {
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map(read);
  if ("$" in value) return read(packed.shared[value.$]);
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, read(each)]));
}`;
}

function isLong(value: unknown): value is object | string {
  return (typeof value === "object" && value !== null) || (typeof value === "string" && value.length > 40);
}

/** Writes the licences of a worker's packages: `build.license` knows those of the page alone. */
const workerLicences = (): Plugin => ({
  name: "worker-licences",
  generateBundle(_options, bundle) {
    const chunks = Object.values(bundle).filter((file) => file.type === "chunk");
    const worker = chunks.find((chunk) => chunk.isEntry)?.name ?? "";
    const modules = chunks.flatMap((chunk) => chunk.moduleIds);
    const packages = new Set(modules.flatMap((id) => /^.*\/node_modules\/(?:@[^/]+\/)?[^/]+/.exec(id) ?? []));
    const source = `# Licenses of ${worker}\n\n${[...packages].sort().map(licenceOf).join("\n")}`;
    this.emitFile({ type: "asset", fileName: `licenses-${worker}.md`, source });
  },
});

/** Writes the licences of the fonts: `build.license` knows packages with code alone. */
const fontLicences = (): Plugin => ({
  name: "font-licences",
  generateBundle() {
    const fonts = new URL("node_modules/@fontsource-variable/", import.meta.url).pathname;
    const source = `# Licenses of the fonts\n\n${readdirSync(fonts).sort().map((name) => licenceOf(fonts + name)).join("\n")}`;
    this.emitFile({ type: "asset", fileName: "licenses-fonts.md", source });
  },
});

/** Writes each text once, below all packages that have it. A text may have headings, but none with a version. */
const eachLicenceOnce = (): Plugin => ({
  name: "each-licence-once",
  writeBundle({ dir = "" }) {
    for (const name of readdirSync(dir).filter((each) => /^licenses.*\.md$/.test(each))) {
      writeFileSync(`${dir}/${name}`, withEachTextOnce(readFileSync(`${dir}/${name}`, "utf8")));
    }
  },
});

function withEachTextOnce(source: string): string {
  const [preface = "", ...packages] = source.split(/^(?=## \S+ - \d)/m);
  const headings = new Map<string, string[]>();
  for (const each of packages) {
    const [heading = "", ...text] = each.split("\n");
    const body = text.join("\n").trim();
    headings.set(body, [...(headings.get(body) ?? []), heading]);
  }
  return [preface.trim(), ...[...headings].map(([body, each]) => `${each.join("\n")}\n\n${body}`)].join("\n\n") + "\n";
}

function licenceOf(directory: string): string {
  const { name, version, license } = JSON.parse(readFileSync(`${directory}/package.json`, "utf8")) as Record<string, string>;
  const file = readdirSync(directory).find((each) => /^licen[cs]e/i.test(each));
  return `## ${name} - ${version} (${license})\n\n${file ? readFileSync(`${directory}/${file}`, "utf8") : ""}\n`;
}

// The page is served by usechat itself: relative addresses, so that it works under any prefix, and nothing inline,
// so that it works under a strict Content-Security-Policy.
export default defineConfig({
  base: "./",
  plugins: [onlyWoff2, inOrderOfSource, fontLicences(), eachLicenceOnce(), react(), tailwindcss()],
  resolve: { alias: parsers },
  define: { AI_SDK_RELEASE: JSON.stringify(ai.version) },
  worker: { format: "es", plugins: () => [smallGrammars, workerLicences()] },
  build: {
    outDir: "../src/usechat/web/built",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 2000,
    license: { fileName: "licenses.md" },
  },
});
