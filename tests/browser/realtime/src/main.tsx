import { openai } from "@ai-sdk/openai";
import { createRoot } from "react-dom/client";
import { Voice } from "./voice";

const model = openai.experimental_realtime("gpt-realtime");

createRoot(document.getElementById("root")!).render(<Voice model={model} />);
