import { svelte } from "@sveltejs/vite-plugin-svelte";
import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

export default defineConfig({
  base: "./",
  plugins: [react(), svelte()],
  build: { rollupOptions: { input: ["react.html", "elements.html", "vue.html", "svelte.html"] } },
});
