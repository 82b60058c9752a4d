"""Take a picture of each part as the page shows it, for docs/parts.md: ``python -m scripts.part_pictures``."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.chatting import ask, expect
from tests.browser.chromium import ARGUMENTS, find_chromium
from tests.browser.conftest import page_served
from usechat import Data, File, Reasoning, SourceUrl, Text, ToolCall, ToolError, ToolResult, Turn
from usechat.parts import (
    Abort,
    ApprovalRequest,
    ApprovalResponse,
    Error,
    Finish,
    Metadata,
    Part,
    ReasoningFile,
    SourceDocument,
    Step,
    ToolDenied,
    ToolInputDelta,
    ToolInputError,
    ToolInputStart,
)

IMAGES: Final = Path(__file__).parent.parent / "docs" / "images"
CIRCLE: Final = (
    "data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIHdpZHRoPSI2MCIgaGVpZ2h0PSI2MCI+"
    "PGNpcmNsZSBjeD0iMzAiIGN5PSIzMCIgcj0iMjYiIGZpbGw9IiMyNTYzZWIiLz48L3N2Zz4="
)
WEATHER: Final = ToolCall("call-1", "weather", {"city": "Paris"})
DELETE: Final = ToolCall("call-1", "delete_file", {"file": "a.txt"})
PICTURES: Final[Mapping[str, Sequence[Part]]] = {
    "text": [Text("It is **21 °C** in Paris.")],
    "reasoning": [Reasoning("They want to know the weather. I look it up."), Text("It is 21 °C.")],
    "tool-input": [ToolInputStart("call-1", "weather"), ToolInputDelta("call-1", '{"city": "Par')],
    "tool-result": [WEATHER, ToolResult("call-1", {"celsius": 21})],
    "tool-error": [WEATHER, ToolError("call-1", "There is no weather for that city.")],
    "tool-input-error": [ToolInputError("call-1", "wether", "There is no tool wether.", {"city": "Paris"})],
    "approval": [DELETE, ApprovalRequest("approval-1", "call-1")],
    "denied": [
        DELETE,
        ApprovalRequest("a", "call-1"),
        ApprovalResponse("a", False),
        ToolDenied("call-1", "Not today."),
    ],
    "sources": [
        Text("It is warm."),
        SourceUrl("1", "https://example.com/weather", "Weather in Paris"),
        SourceDocument("2", "application/pdf", "Climate report", "report.pdf"),
    ],
    "file": [Text("Here is a circle."), File(CIRCLE, "image/svg+xml")],
    "reasoning-file": [
        Reasoning("I draw it first."),
        ReasoningFile(CIRCLE, "image/svg+xml"),
        Text("A circle has no corners."),
    ],
    "data": [
        Data("progress", {"percent": 40, "label": "Reading files"}, "job"),
        Data("sales", {"series": [{"name": "2026", "values": [3, 5, 2]}], "labels": ["a", "b", "c"]}),
    ],
    "metadata": [
        Text("Done."),
        Metadata({"durationMs": 1800}),
        Finish(usage={"inputTokens": 12, "outputTokens": 3, "totalTokens": 15}),
    ],
    "steps": [Text("First I look."), Step(), Text("Then I answer.")],
    "lanes": [Text("I plan. ", lane="planner"), Text("I write code.", lane="coder"), Text("Done.", lane="planner")],
    "error": [Text("It is"), Error("The weather service is away.")],
    "abort": [Text("It is"), Abort("The person pressed Stop.")],
}
"""The pictures by name, and what the agent sends for each."""
RUNNING: Final = "tool-input"
"""The picture of an answer that has not ended."""


async def agent(turn: Turn) -> AsyncIterator[Part]:
    """Send the parts of the picture that the message names."""
    for part in PICTURES[turn.text]:
        yield part
    if turn.text == RUNNING:
        await asyncio.Event().wait()


def main() -> None:
    """Take all pictures, in light."""
    chromium = find_chromium()
    with page_served(agent) as served, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium.path, args=list(ARGUMENTS), env={**chromium.environment}
        )
        for name in PICTURES:
            _take(browser, f"http://127.0.0.1:{served.port}/chat/", name)
        browser.close()


def _take(browser: Browser, address: str, name: str) -> None:
    """Take the picture of one answer in a new chat."""
    context = browser.new_context(viewport={"width": 640, "height": 800}, color_scheme="light")
    page = context.new_page()
    page.goto(address)
    ask(page, name)
    if name == RUNNING:
        expect(page.get_by_label("Assistant")).to_contain_text("Weather")
    else:
        expect(page.get_by_role("button", name="Send")).to_be_visible()
    _open_details(page, name)
    page.mouse.move(0, 0)
    page.wait_for_timeout(400)  # transitions end
    region = page.get_by_role("alert") if name == "error" else page.get_by_label("Assistant")
    box = region.bounding_box()
    assert box is not None
    margin = 12
    clip = {"x": box["x"] - margin, "y": box["y"] - margin, "width": box["width"] + 2 * margin}
    page.screenshot(path=IMAGES / f"part-{name}.png", clip={**clip, "height": box["height"] + 2 * margin})  # type: ignore[arg-type]
    context.close()


def _open_details(page: Page, name: str) -> None:
    """Open what the page folds, where the picture is about what is inside."""
    folded = page.get_by_label("Assistant").locator("button[aria-expanded=false]")
    if name in ("reasoning", "tool-result") and folded.count():
        folded.first.click()


if __name__ == "__main__":
    main()
