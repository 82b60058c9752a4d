import { Chat } from "@ai-sdk/vue";
import { createApp, h } from "vue";
import { decisions, isTool, options, toolText } from "./options";

const chat = new Chat(options);

function send(event) {
  event.preventDefault();
  const [text, files] = event.target.elements;
  void chat.sendMessage({ text: text.value, files: files.files });
  text.value = "";
}

function part(each) {
  if (each.type === "text" || each.type === "reasoning") return h("p", { "data-part": each.type }, each.text);
  if (each.type === "file") return h("img", { "data-part": "file", src: each.url, alt: each.filename ?? "file" });
  if (!isTool(each)) return null;
  const answer = (approved) => void chat.addToolApprovalResponse({ id: each.approval.id, approved });
  const buttons = Object.entries(decisions).map(([name, approved]) => h("button", { type: "button", onClick: () => answer(approved) }, name));
  return h("p", { "data-part": "tool" }, [toolText(each), ...(each.state === "approval-requested" ? buttons : [])]);
}

createApp({
  mounted: () => void chat.resumeStream(),
  render: () =>
    h("form", { onSubmit: send, "data-status": chat.status }, [
      ...chat.messages.map((message) => h("section", { key: message.id, "data-role": message.role }, message.parts.map(part))),
      h("input", { name: "text", "aria-label": "Message" }),
      h("input", { type: "file", "aria-label": "Files" }),
      h("button", "Send"),
      h("button", { type: "button", onClick: () => void chat.stop() }, "Stop"),
    ]),
}).mount("#root");
