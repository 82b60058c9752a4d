import tailwindcss from "@tailwindcss/vite";
import react from "@vitejs/plugin-react";
import ai from "ai/package.json" with { type: "json" };
import { defineConfig } from "vite";

const parsers = {
  "hast-util-from-html-isomorphic": new URL("node_modules/hast-util-from-html-isomorphic/index.js", import.meta.url).pathname,
};

/** KaTeX names each font in three formats; every browser that runs the page reads the first, woff2. */
const onlyWoff2 = {
  name: "only-woff2",
  enforce: "pre" as const,
  transform(code: string, id: string) {
    if (!id.includes("katex") || !id.endsWith(".css")) return undefined;
    return code.replace(/,url\([^)]+\.(?:woff|ttf)\) format\("(?:woff|truetype)"\)/g, "");
  },
};

// The page is served by usechat itself: relative addresses, so that it works under any prefix, and nothing inline,
// so that it works under a strict Content-Security-Policy.
export default defineConfig({
  base: "./",
  plugins: [onlyWoff2, react(), tailwindcss()],
  // KaTeX's markup is parsed by a parser of its own: the browser's would apply its inline styles, which the policy forbids.
  resolve: { alias: parsers },
  define: { AI_SDK_RELEASE: JSON.stringify(ai.version) },
  build: {
    outDir: "../src/usechat/web/built",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 2000,
    license: { fileName: "licenses.md" },
  },
});
