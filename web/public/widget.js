// Puts a usechat page behind a button: <script src="https://chat.example.com/widget.js" async></script>
// The server must allow the origin of this site: usechat serve --embed https://www.example.com
(() => {
  const script = document.currentScript;
  const page = new URL(".", script.src);
  const { label = "Chat", accent = "#0f766e", text = "#ffffff" } = script.dataset;

  const style = (element, rules) => Object.assign(element.style, rules);
  const host = document.createElement("div");
  const root = host.attachShadow({ mode: "open" });
  const button = document.createElement("button");
  const icon = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  let frame;

  button.type = "button";
  button.setAttribute("aria-label", label);
  style(button, {
    position: "fixed", right: "16px", bottom: "16px", zIndex: "2147483647", display: "grid", placeItems: "center",
    width: "56px", height: "56px", padding: "0", border: "0", borderRadius: "28px", cursor: "pointer",
    background: accent, color: text, boxShadow: "0 4px 16px rgb(0 0 0 / 25%)",
  });
  const attributes = {
    width: 24, height: 24, viewBox: "0 0 24 24", fill: "none", stroke: "currentColor", "stroke-width": 2,
    "stroke-linecap": "round", "stroke-linejoin": "round", "aria-hidden": true,
  };
  for (const [name, value] of Object.entries(attributes)) icon.setAttribute(name, value);
  icon.append(path);
  button.append(icon);
  root.append(button);

  function show(open) {
    path.setAttribute("d", open ? "M6 6l12 12M18 6L6 18" : "M21 12a8 8 0 0 1-8 8H4l2-3a8 8 0 1 1 15-5z");
    button.setAttribute("aria-expanded", open);
    if (open && !frame) load();
    if (!frame) return;
    frame.style.display = open ? "block" : "none";
    (open ? frame : button).focus();
  }

  function load() {
    frame = document.createElement("iframe");
    frame.title = label;
    frame.allow = "clipboard-write";
    frame.src = page;
    style(frame, {
      position: "fixed", right: "16px", bottom: "84px", zIndex: "2147483647", boxSizing: "border-box",
      width: "min(420px, calc(100vw - 32px))", height: "min(680px, calc(100vh - 100px))",
      border: "1px solid rgb(128 128 128 / 35%)", borderRadius: "16px", background: "Canvas",
      boxShadow: "0 8px 32px rgb(0 0 0 / 25%)",
    });
    root.append(frame);
  }

  // The page asks for the user's token when it needs one. Only that page hears the answer.
  addEventListener("message", async ({ source, origin, data }) => {
    if (!frame || source !== frame.contentWindow || origin !== page.origin || data?.usechat !== "wants-token") return;
    let token = "";
    try {
      token = (await window.usechatToken?.()) ?? "";
    } finally {
      source.postMessage({ usechat: "token", token }, page.origin);
    }
  });
  addEventListener("keydown", ({ key }) => key === "Escape" && button.getAttribute("aria-expanded") === "true" && show(false));
  button.addEventListener("click", () => show(button.getAttribute("aria-expanded") !== "true"));
  show(false);
  if (document.body) document.body.append(host);
  else addEventListener("DOMContentLoaded", () => document.body.append(host));
})();
