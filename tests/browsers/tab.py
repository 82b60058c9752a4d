"""What a person does in a tab, and sees there, in any browser.

An element is named by a CSS selector and the name that a screen reader tells of it. Of several the last one counts: in
a conversation it is the newest. Whatever is done waits until it can be done.
"""

from collections.abc import Mapping
from typing import Any, Final

from tests.browser.agent import open_gates
from tests.browsers.driver import Driver
from tests.conformance.served import eventually

_ELEMENTS: Final = """const hosts = [...(document.body?.children ?? [])].filter((each) => each.shadowRoot);
const roots = [document, ...hosts.map((each) => each.shadowRoot)];
const elements = (selector, name) => roots.flatMap((root) => [...root.querySelectorAll(selector)]).filter((element) =>
    element.checkVisibility({ checkVisibilityCSS: true }) && (name === null || nameOf(element) === name));
const nameOf = (element) =>
    element.getAttribute("aria-label") ?? (element.labels?.[0] ?? element).innerText.trim().replace(/\\s+/g, " ");"""
_COUNT: Final = f"(selector, name) => {{ {_ELEMENTS} return elements(selector, name).length; }}"
_TEXTS: Final = f"(selector) => {{ {_ELEMENTS} return elements(selector, null).map((element) => element.innerText); }}"
_MIDDLE: Final = f"""async (selector, name) => {{
    {_ELEMENTS}
    const element = elements(selector, name).at(-1);
    if (!element || element.disabled) return null;
    element.scrollIntoView({{ block: "nearest" }});
    const before = element.getBoundingClientRect();
    await new Promise((done) => setTimeout(done, 50));
    const {{ x, y, width, height }} = element.getBoundingClientRect();
    const middle = [Math.round(x + width / 2), Math.round(y + height / 2)];
    const atMiddle = element.getRootNode().elementFromPoint(...middle);
    return before.x === x && before.y === y && element.contains(atMiddle) ? middle : null;
}}"""
"""The middle of an element that rests and is covered by nothing."""
# When heights change, the view is placed anew; what comes into sight by that is measured in the next frame, and told.
_NOTE_COMPLAINTS: Final = """() => {
    window.complaints = [];
    const note = (text) => String(text).startsWith("ResizeObserver loop") || window.complaints.push(String(text));
    addEventListener("error", (event) => note(event.message));
    addEventListener("unhandledrejection", (event) => note(event.reason));
    addEventListener("securitypolicyviolation", (event) => note(`${event.violatedDirective} ${event.blockedURI}`));
    console.error = console.warn = (...all) => note(all.join(" "));
}"""
_KEYS: Final[Mapping[str, str]] = {
    "ArrowDown": "\ue015",
    "Control": "\ue009",
    "Enter": "\ue007",
    "Escape": "\ue00c",
    "Shift": "\ue008",
    "Space": " ",
}


class Tab:
    """A tab with a page of usechat."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.complaints: list[str] = []

    def open(self, url: str, *, shows: str = "#prompt") -> None:
        """Open an address, and wait for an element."""
        self.driver.navigate(url)
        self._watch(shows)

    def reload(self, *, shows: str = "#prompt") -> None:
        """Load the page again, and wait for an element."""
        self.note_complaints()
        self.driver.reload()
        self._watch(shows)

    def note_complaints(self) -> None:
        """Keep what the page has complained of so far."""
        self.complaints += self.evaluate("() => window.complaints?.splice(0) ?? []")

    def evaluate(self, function: str, *arguments: Any) -> Any:
        """Call a function of JavaScript in the page."""
        return self.driver.evaluate(function, *arguments)

    def count(self, selector: str, name: str | None = None) -> int:
        """Return how many such elements are shown."""
        count: int = self.evaluate(_COUNT, selector, name)
        return count

    def text(self, selector: str = "body") -> str:
        """Return the text of the last such element, or none if there is none."""
        texts: list[str] = self.evaluate(_TEXTS, selector)
        return texts[-1] if texts else ""

    def see(self, text: str, selector: str = "body") -> None:
        """Wait until this text is shown."""
        eventually(lambda: text in self.text(selector), f"{selector} shows {text!r}")

    def miss(self, text: str) -> None:
        """Wait until this text is shown nowhere."""
        eventually(lambda: text not in self.text(), f"nothing shows {text!r}")

    def find(self, selector: str, name: str | None = None) -> None:
        """Wait until such an element is shown."""
        eventually(lambda: self.count(selector, name), f"{selector} {name or ''} is shown")

    def find_button(self, name: str) -> None:
        """Wait until a button is shown."""
        self.find("button", name)

    def lose(self, selector: str, name: str | None = None) -> None:
        """Wait until no such element is shown."""
        eventually(lambda: not self.count(selector, name), f"{selector} {name or ''} is gone")

    def hover(self, selector: str, name: str | None = None) -> None:
        """Move the pointer over an element."""
        self._point([_move(*self._middle(selector, name))])

    def click(self, selector: str, name: str | None = None) -> None:
        """Click an element."""
        self._point([_move(*self._middle(selector, name)), _DOWN, _UP])

    def click_button(self, name: str) -> None:
        """Click a button."""
        self.click("button", name)

    def drag(self, selector: str, to: tuple[int, int]) -> None:
        """Drag an element to a point, as slowly as a hand."""
        self._point([_move(*self._middle(selector, None)), _DOWN, {**_move(*to), "duration": 200}, _UP])

    def scroll(self, selector: str, distance: int) -> None:
        """Turn the wheel over an element."""
        x, y = self._middle(selector, None)
        wheel = {"type": "scroll", "x": x, "y": y, "deltaX": 0, "deltaY": distance}
        self.driver.perform([{"type": "wheel", "id": "wheel", "actions": [wheel]}])

    def press(self, *names: str) -> None:
        """Press keys together."""
        keys = [_KEYS.get(name, name) for name in names]
        down = [{"type": "keyDown", "value": key} for key in keys]
        up = [{"type": "keyUp", "value": key} for key in reversed(keys)]
        self.driver.perform([{"type": "key", "id": "keyboard", "actions": [*down, *up]}])

    def fill(self, selector: str, text: str, name: str | None = None) -> None:
        """Put a text into a field, in place of what is there, as an input method does: keys take WebKit 0.1 s each."""
        self.click(selector, name)
        self.press("Control", "a")
        assert self.evaluate("(text) => document.execCommand('insertText', false, text)", text)

    def ask(self, text: str) -> None:
        """Send a message, and see it."""
        self.fill("#prompt", text)
        self.press("Enter")
        self.see(text, ".message.user")

    def ask_and_wait(self, text: str) -> None:
        """Send a message, and wait until it is answered."""
        self.ask(text)
        self.wait_until_idle()

    def wait_until_idle(self) -> None:
        """Wait until the answer is complete: one can send again."""
        self.find_button("Send")

    def go_on(self) -> None:
        """Let the held answer of this chat go on to its end."""
        open_gates(self.evaluate("() => new URLSearchParams(location.search).get('chat')"))

    def _watch(self, shows: str) -> None:
        self.evaluate(_NOTE_COMPLAINTS)
        self.find(shows)

    def _middle(self, selector: str, name: str | None) -> tuple[int, int]:
        middles: list[tuple[int, int]] = []

        def is_found() -> bool:
            middles[:] = filter(None, [self.evaluate(_MIDDLE, selector, name)])
            return bool(middles)

        eventually(is_found, f"{selector} {name or ''} can be clicked")
        return middles[0]

    def _point(self, actions: list[Mapping[str, Any]]) -> None:
        self.driver.perform([{"type": "pointer", "id": "mouse", "actions": actions}])


_DOWN: Final = {"type": "pointerDown", "button": 0}
_UP: Final = {"type": "pointerUp", "button": 0}


def _move(x: int, y: int) -> dict[str, Any]:
    return {"type": "pointerMove", "x": x, "y": y}
