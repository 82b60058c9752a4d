// Builds the page with the hook of another major: node build-page.mjs HOOK_DIRECTORY OUTPUT_DIRECTORY
import { createRequire } from "node:module";
import { resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const [hook, output] = process.argv.slice(2).map((path) => resolve(path));
const web = fileURLToPath(new URL("../../web/", import.meta.url));
const load = (name) => import(pathToFileURL(createRequire(`${web}/package.json`).resolve(name)));
const { build } = await load("vite");
const { default: react } = await load("@vitejs/plugin-react");
const { default: tailwindcss } = await load("@tailwindcss/vite");

const { version } = createRequire(import.meta.url)(`${hook}/node_modules/ai/package.json`);

await build({
  configFile: false,
  root: web,
  base: "./",
  plugins: [react(), tailwindcss()],
  define: { AI_SDK_RELEASE: JSON.stringify(version) },
  logLevel: "error",
  worker: { format: "es" },
  resolve: {
    alias: {
      "decode-named-character-reference": `${web}node_modules/decode-named-character-reference/index.js`,
      "hast-util-from-html-isomorphic": `${web}node_modules/hast-util-from-html-isomorphic/index.js`,
      "@ai-sdk/react": `${hook}/node_modules/@ai-sdk/react`,
      ai: `${hook}/node_modules/ai`,
    },
    dedupe: ["react", "react-dom"],
  },
  build: { outDir: output, emptyOutDir: true },
});
