// Sends requests with McpAppsRemoteHost: node host.mjs URL '[["callTool", {…}], …]' prints what each was answered.
import { McpAppsRemoteHost } from "@assistant-ui/react";
import { createTapRoot, useResource } from "@assistant-ui/tap";

const [url, requests] = process.argv.slice(2);
const root = createTapRoot(() => useResource(McpAppsRemoteHost({ url })));
const host = root.getValue();
const answers = [];
for (const [name, params] of JSON.parse(requests)) {
  try {
    answers.push(await host[name](params));
  } catch (error) {
    answers.push(error.message);
  }
}
root.unmount();
console.log(JSON.stringify(answers));
