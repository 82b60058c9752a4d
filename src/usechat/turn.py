"""What an agent is asked, and how it may speak from anywhere in its call tree."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, Protocol

import msgspec

from usechat.errors import LocalProtocolError
from usechat.protocol.parts import Data, Part
from usechat.protocol.request import ApprovalAnswer, ChatRequest, ToolOutput
from usechat.protocol.ui_messages import FileUIPart, UIMessage

__all__ = ["Identity", "SourceObserver", "Turn", "current_turn", "emit"]


class Identity(msgspec.Struct, frozen=True):
    """Who asks: ``subject`` owns the chat; ``claims`` is what the token says; ``token`` may be passed on upstream."""

    subject: str
    claims: Mapping[str, Any] = {}
    token: str | None = None

    def __repr__(self) -> str:
        """Name the subject alone: a log is no place for tokens and what they say."""
        return f"Identity({self.subject!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """The same for ``rich``, which would show every field."""
        return [("subject", self.subject)]


class SourceObserver(Protocol):
    """Hears what a source has to tell beside its answer; metrics count it."""

    def source_unreachable(self) -> None:
        """An upstream connection could not be opened."""
        ...

    def source_connected(self) -> None:
        """An upstream connection was opened."""
        ...

    def source_disconnected(self) -> None:
        """An upstream connection was closed."""
        ...

    def event_unknown(self, kind: str) -> None:
        """A source sent an event that its adapter does not know."""
        ...


class Turn:
    """One turn of one chat. Messages, tool outputs and approvals are the client's word, never proof."""

    def __init__(
        self,
        request: ChatRequest,
        *,
        identity: Identity | None = None,
        headers: Mapping[str, str] | None = None,
        path_params: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
        observer: SourceObserver | None = None,
    ) -> None:
        self.request = request
        self.identity = identity
        self.headers: Mapping[str, str] = headers or {}
        self.path_params: Mapping[str, Any] = path_params or {}
        self.query: Mapping[str, str] = query or {}
        self._observer = observer
        self.say: Callable[[Part], bool | None] = _nobody_listens
        """Says a part at once; for the loop's own thread. Tells whether others should have their turn."""
        self._is_crowded = False
        self._stopped = False
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    @property
    def chat_id(self) -> str:
        """The chat's id."""
        return self.request.chat_id

    @property
    def text(self) -> str:
        """The text of the user's last message."""
        return self.request.text

    @property
    def files(self) -> list[FileUIPart]:
        """The files of the user's last message; their URLs are never fetched by the server."""
        return self.request.files

    @property
    def messages(self) -> list[UIMessage]:
        """The history as the client tells it."""
        return self.request.messages

    @property
    def body(self) -> Mapping[str, Any]:
        """The application's own keys of the request."""
        return self.request.body

    @property
    def tool_outputs(self) -> list[ToolOutput]:
        """What the client says its tools returned, for calls that wait for it; a server always knows which do.

        Code that makes its own turns is the one that asked, and gets all of them.
        """
        return self.request.tool_outputs

    @property
    def approvals(self) -> list[ApprovalAnswer]:
        """What a person answered to approval requests; each was asked for, and its call has not changed."""
        return self.request.approvals

    @property
    def stopped(self) -> bool:
        """Whether the turn was stopped; code in threads looks at it now and then."""
        return self._stopped

    def bind(self, say: Callable[[Part], bool | None]) -> None:
        """Connect the turn with the run that hears it, and tells whether others should have their turn."""
        self.say = say

    def unbind(self, say: Callable[[Part], bool | None]) -> None:
        """The run that heard the turn is over; if it still did, nobody hears what is said from now on."""
        if self.say == say:
            self.say = _nobody_listens_any_more

    def source_unreachable(self) -> None:
        """Tell that the connection to the upstream could not be opened; called from the loop's thread."""
        if self._observer is not None:
            self._observer.source_unreachable()

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Count a connection to the upstream as open; used in the loop's thread."""
        if self._observer is None:
            yield
            return
        self._observer.source_connected()
        try:
            yield
        finally:
            self._observer.source_disconnected()

    def event_unknown(self, kind: str) -> None:
        """Tell that the source sent an event which its adapter does not know; called from the loop's thread."""
        if self._observer is not None:
            self._observer.event_unknown(kind)

    async def breathe(self) -> None:
        """Let others have their turn when much was said without a pause; a source calls it between two parts."""
        if self._is_crowded:
            self._is_crowded = False
            await asyncio.sleep(0)

    def stop(self) -> None:
        """Raise the flag that threads look at."""
        self._stopped = True

    def send(self, part: Part) -> None:
        """Say a part at once, from any thread."""
        if threading.get_ident() == self._thread:
            self._is_crowded = self.say(part) or self._is_crowded
        else:
            self._loop.call_soon_threadsafe(self.say, part)

    def emit(self, name: str, data: Any, *, id: str | None = None, transient: bool = False) -> None:  # noqa: A002
        """Send a ``data-<name>`` part at once, from any thread. The same id replaces."""
        self.send(Data(name, data, id, transient))

    def enter(self) -> None:
        """Make this the turn that :func:`emit` speaks for, in the calling context from here on."""
        _current.set(self)


def _nobody_listens(_part: Part) -> bool:
    raise LocalProtocolError("the turn has not begun")


def _nobody_listens_any_more(_part: Part) -> bool:
    return False


_current: Final[ContextVar[Turn]] = ContextVar("usechat.turn")


def current_turn() -> Turn:
    """Return the turn that the calling code runs in."""
    try:
        return _current.get()
    except LookupError:
        raise LocalProtocolError("no turn is running here; emit() works in code that an agent calls") from None


def emit(name: str, data: Any, *, id: str | None = None, transient: bool = False) -> None:  # noqa: A002
    """Send a ``data-<name>`` part of the turn that the calling code runs in."""
    current_turn().emit(name, data, id=id, transient=transient)
