"""The page code in the documentation, compiled by the real compiler with the real packages."""

import re
from pathlib import Path

from scripts.generate_docs import pages
from tests.browser.building import HERE as FRONT_ENDS
from tests.browser.building import install
from tests.conformance.judge import NODE_DIRECTORY
from tests.conformance.tsc import complaints

BLOCK = re.compile(r"^```tsx?\n(.*?)^```", re.DOTALL | re.MULTILINE)
AROUND = """
import { useChat } from "@ai-sdk/react";
import { DefaultChatTransport, lastAssistantMessageIsCompleteWithToolCalls, type UIMessage } from "ai";
import { useEffect } from "react";

declare const chatId: string, id: string, sessionId: string, token: string, history: UIMessage[];
declare const part: { approval: { id: string } };
declare const addToolApprovalResponse: ReturnType<typeof useChat>["addToolApprovalResponse"];
declare const message: UIMessage<unknown, { weather: { city: string; celsius: number } }>;
declare const load: (id: string) => Promise<UIMessage[]>;
declare const loadChat: (id: string) => Promise<{ messages: UIMessage[]; running: { messageId: string } | null }>;
declare const Question: (props: { asked: unknown; answer: (output: unknown) => void }) => React.JSX.Element;
declare const WeatherCard: (props: { city: string; celsius: number }) => React.JSX.Element;

export async function Block() {
"""
"""What a reader of a block knows from the text around it."""


def blocks() -> dict[str, str]:
    """Return each block as a file that can be compiled alone; a bare expression of JSX is returned.

    A block that begins with imports is a file already.
    """
    files = {}
    for page in pages():
        for number, code in enumerate(BLOCK.findall(page.read_text(encoding="utf-8")), 1):
            body = f"return <>{code}</>;" if code.startswith("{") else code
            whole = code if code.startswith("import ") else f"{AROUND}{body}\n}}\n"
            files[f"{page.stem}-{number}.tsx"] = whole
    return files


def test_every_block_is_compiled_without_a_complaint(tmp_path: Path) -> None:
    files = blocks()
    assert {"start-1.tsx", "resume-2.tsx", "errors-1.tsx", "tools-1.tsx", "data-1.tsx", "chats-3.tsx"} <= {*files}
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    install(FRONT_ENDS / "assistant-ui")
    packages = [FRONT_ENDS / "assistant-ui" / "node_modules", alone(tmp_path / "alone", "@ai-sdk/workflow")]
    assert complaints(tmp_path, *files, more_packages=packages) == ""


def alone(folder: Path, name: str) -> Path:
    """Link a package into a folder without those that it brings: it uses the page's `ai`, as npm installs it there."""
    (folder / name).mkdir(parents=True)
    for part in ("package.json", "dist"):
        (folder / name / part).symlink_to(NODE_DIRECTORY / "node_modules" / name / part)
    return folder
