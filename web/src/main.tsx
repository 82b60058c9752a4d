import { createRoot } from "react-dom/client";
import { Page } from "./page";
import { readSettings } from "./settings";
import "./styles.css";

const root = document.getElementById("root");
if (root) createRoot(root).render(<Page settings={readSettings()} />);
