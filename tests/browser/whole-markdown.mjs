// Reads Markdown in one go, with nothing of the page, and writes it as HTML: node whole-markdown.mjs < TEXT
import { createRequire } from "node:module";
import { text } from "node:stream/consumers";
import { fileURLToPath, pathToFileURL } from "node:url";

const { resolve } = createRequire(fileURLToPath(new URL("../../web/package.json", import.meta.url)));
const load = (name) => import(pathToFileURL(resolve(name)));
const { unified } = await load("unified");
const { toHtml } = await load("hast-util-to-html");
const { default: parse } = await load("remark-parse");
const { default: gfm } = await load("remark-gfm");
const { default: math } = await load("remark-math");
const { default: rehype } = await load("remark-rehype");
const { default: raw } = await load("rehype-raw");
const { default: katex } = await load("rehype-katex");

const processor = unified()
  .use(parse)
  .use(gfm, { singleTilde: false })
  .use(math, { singleDollarTextMath: false })
  .use(rehype, { allowDangerousHtml: true, clobberPrefix: "" })
  .use(raw)
  .use(katex);
process.stdout.write(toHtml(processor.runSync(processor.parse(await text(process.stdin)))));
