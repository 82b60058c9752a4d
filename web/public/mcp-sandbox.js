// The sandbox proxy of MCP Apps (2026-01-26): this page of another origin shows the HTML of an app in a frame without an origin,
// below a policy, and passes messages on between that frame and the page around this one.
(() => {
  if (parent === window) return;
  const OWN = "ui/notifications/sandbox-";
  // The app's scripts and styles are in its HTML, and it reaches nothing else.
  const STRICT =
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; font-src data:; media-src data:";
  const app = document.createElement("iframe");
  // Never allow-same-origin: apps of several servers share this origin.
  app.setAttribute("sandbox", "allow-scripts allow-forms");
  app.title = "MCP App";

  function show({ html, csp, allow }) {
    // Nothing of the app stands before its policy, and no script removes a policy that was read.
    const policy = document.createElement("meta");
    policy.httpEquiv = "Content-Security-Policy";
    policy.content = typeof csp === "string" ? csp : STRICT;
    app.allow = typeof allow === "string" ? allow : "";
    app.srcdoc = `<!doctype html>${policy.outerHTML}${html}`;
    document.body.append(app);
  }

  addEventListener("message", ({ source, data }) => {
    const isOwn = typeof data?.method === "string" && data.method.startsWith(OWN);
    if (source === parent && data?.method === `${OWN}resource-ready`) show(data.params);
    else if (isOwn) return;
    else if (source === parent) app.contentWindow?.postMessage(data, "*");
    else if (source === app.contentWindow) parent.postMessage(data, "*");
  });
  parent.postMessage({ jsonrpc: "2.0", method: `${OWN}proxy-ready`, params: {} }, "*");
})();
