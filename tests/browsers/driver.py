"""What the tests need of a browser: by which protocol it is driven, they do not see."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

STAGE: Final = "test-browsers"
"""The stage that installs the browsers."""

Actions = Sequence[Mapping[str, Any]]
"""What keys, pointers and wheels do, as WebDriver writes it; WebDriver BiDi writes the same."""


class Driver(Protocol):
    """A tab of a browser, with storage of its own."""

    def navigate(self, url: str) -> None:
        """Open an address, and wait until the page is loaded."""

    def reload(self) -> None:
        """Load the page again, and wait until it is loaded."""

    def enter_frame(self) -> None:
        """Go on in the frame that the widget has put into the page."""

    def resize(self, width: int, height: int) -> None:
        """Give the view of the page this size."""

    def evaluate(self, function: str, *arguments: Any) -> Any:
        """Call a function of JavaScript with values, and return the value that it gives or promises."""

    def perform(self, actions: Actions) -> None:
        """Press keys, move and press a pointer, or turn a wheel."""


OpenDriver = Callable[[], AbstractContextManager[Driver]]
"""Opens a tab of a running browser until the block ends."""
