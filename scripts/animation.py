"""Record the animated picture of the page in README.md: ``python -m scripts.animation``.

A person types a question; the agent thinks, uses a tool, asks before it does something, and continues after Approve.
Frames are screenshots of a real Chromium with the times at which they were taken.
"""

import asyncio
import io
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from tests.browser.chatting import expect
from tests.browser.chromium import ARGUMENTS, find_chromium
from tests.browser.conftest import page_served
from usechat import Reasoning, Text, ToolCall, ToolResult, Turn
from usechat.parts import ApprovalRequest, Part

PICTURE: Final = Path(__file__).parent.parent / "docs" / "images" / "page.gif"
SIZE: Final = (900, 620)
QUESTION: Final = "Is the kettle of order 1001 late? If so, pay it back."
THOUGHT: Final = "A late order may be paid back. I look it up first."
LOOKED: Final = (
    "Order 1001, *a red kettle*, is **nine days late**. I can pay back 39 €. That cannot be undone, so please approve"
    " it first."
)
PAID: Final = "Done. **39 €** are on their way back to you."
COLOURS: Final = 64
LARGEST: Final = 1_000_000


async def agent(turn: Turn) -> AsyncIterator[Part]:
    """Look the order up and ask; after the approval, pay back."""
    if turn.approvals:
        yield ToolResult("call-2", {"paid": "39 €"})
        async for part in _words(PAID):
            yield part
        return
    for word in THOUGHT.split():
        yield Reasoning(word + " ")
        await asyncio.sleep(0.08)
    yield ToolCall("call-1", "find_order", {"number": "1001"})
    await asyncio.sleep(0.8)
    yield ToolResult("call-1", {"item": "a red kettle", "euros": 39, "days_late": 9})
    async for part in _words(LOOKED):
        yield part
    yield ToolCall("call-2", "refund", {"number": "1001", "euros": 39})
    yield ApprovalRequest("approval-1", "call-2")


async def _words(text: str) -> AsyncIterator[Part]:
    for word in text.split():
        yield Text(word + " ")
        await asyncio.sleep(0.08)


class Film:
    """The frames of the page, and the second at which each was taken."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._frames: list[Image.Image] = []
        self._times: list[float] = []

    def shoot(self) -> None:
        """Take one frame; one that equals the last only lengthens it."""
        picture = Image.open(io.BytesIO(self._page.screenshot(animations="allow"))).convert("RGB")
        if not self._frames or picture.tobytes() != self._frames[-1].tobytes():
            self._frames.append(picture)
            self._times.append(time.monotonic())

    def shoot_until(self, seconds: float, text: str = "") -> None:
        """Take frames for this long, or until a button of this name is there."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not (text and self._page.get_by_role("button", name=text).is_visible()):
            self.shoot()

    def save(self, path: Path) -> None:
        """Write an animation that repeats; the last frame stays for three seconds."""
        durations = [
            round(1000 * (after - before)) for before, after in zip(self._times, self._times[1:], strict=False)
        ]
        frames = [frame.quantize(COLOURS, dither=Image.Dither.NONE) for frame in self._frames]
        frames[0].save(
            path, save_all=True, append_images=frames[1:], duration=[*durations, 3000], loop=0, optimize=True
        )


def main() -> None:
    """Record the animation, and check that it is small enough."""
    chromium = find_chromium()
    with page_served(agent, description="Answers questions about your orders.") as served, sync_playwright() as running:
        browser = running.chromium.launch(
            executable_path=chromium.path, args=list(ARGUMENTS), env={**chromium.environment}
        )
        size = {"width": SIZE[0], "height": SIZE[1]}
        page = browser.new_context(viewport=size, color_scheme="light").new_page()  # type: ignore[arg-type]
        page.goto(f"http://127.0.0.1:{served.port}/chat/")
        page.wait_for_selector("#prompt")
        film = Film(page)
        _play(page, film)
        film.save(PICTURE)
        browser.close()
    assert PICTURE.stat().st_size < LARGEST, f"{PICTURE} is too large: {PICTURE.stat().st_size} bytes"


def _play(page: Page, film: Film) -> None:
    for end in range(4, len(QUESTION) + 4, 4):
        page.fill("#prompt", QUESTION[:end])
        film.shoot()
    page.press("#prompt", "Enter")
    film.shoot_until(30, "Approve")
    film.shoot_until(1.5)
    page.get_by_role("button", name="Approve").click()
    film.shoot_until(30, "Send")
    expect(page.get_by_label("Assistant")).to_contain_text("on their way back")
    film.shoot_until(0.5)


if __name__ == "__main__":
    main()
