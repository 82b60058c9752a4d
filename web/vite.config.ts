import tailwindcss from "@tailwindcss/vite";
import react from "@vitejs/plugin-react";
import ai from "ai/package.json" with { type: "json" };
import { defineConfig } from "vite";

const parsers = {
  "hast-util-from-html-isomorphic": new URL("node_modules/hast-util-from-html-isomorphic/index.js", import.meta.url).pathname,
};

// The page is served by usechat itself: relative addresses, so that it works under any prefix, and nothing inline,
// so that it works under a strict Content-Security-Policy.
export default defineConfig({
  base: "./",
  plugins: [react(), tailwindcss()],
  // KaTeX's markup is parsed by a parser of its own: the browser's would apply its inline styles, which the policy forbids.
  resolve: { alias: parsers },
  define: { AI_SDK_RELEASE: JSON.stringify(ai.version) },
  build: {
    outDir: "../src/usechat/web/built",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 2000,
  },
});
