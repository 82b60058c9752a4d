import react from "@vitejs/plugin-react";
import ai from "ai/package.json" with { type: "json" };
import { defineConfig } from "vite";

// The page is served by usechat itself: relative addresses, so that it works under any prefix, and nothing inline,
// so that it works under a strict Content-Security-Policy.
export default defineConfig({
  base: "./",
  plugins: [react()],
  define: { AI_SDK_RELEASE: JSON.stringify(ai.version) },
  build: {
    outDir: "../src/usechat/web/built",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 2000,
  },
});
