import { createRoot } from "react-dom/client";
import { Page } from "./page";
import { readSettings } from "./settings";
import { SharedChat } from "./shared-chat";
import "./styles.css";

const root = document.getElementById("root");
const token = new URLSearchParams(location.search).get("shared");
const settings = readSettings();
if (root) createRoot(root).render(token ? <SharedChat settings={settings} token={token} /> : <Page settings={settings} />);
