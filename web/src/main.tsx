import "./no-eval";
import { createRoot } from "react-dom/client";
import { Page } from "./page";
import { readSettings, applyAccent } from "./settings";
import { SharedChat } from "./shared-chat";
import { TextPage } from "./text-page";
import "./styles.css";

const root = document.getElementById("root");
const query = new URLSearchParams(location.search);
const [token, text] = [query.get("shared"), query.get("text")];
const settings = readSettings();
applyAccent(settings);
if (root) createRoot(root).render(shown());

function shown() {
  if (token) return <SharedChat settings={settings} token={token} />;
  return text ? <TextPage settings={settings} path={text} /> : <Page settings={settings} />;
}
