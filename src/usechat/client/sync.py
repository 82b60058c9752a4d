"""The same chat for programs without an event loop: a thread runs the loop, every call waits."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from usechat.client.chat import Chat, Reply, Status, Update
from usechat.client.views import MessageView
from usechat.errors import InvalidSetting
from usechat.protocol.ui_messages import FileUIPart, UIMessage
from usechat.sources import ChatTransport

__all__ = ["LoopThread", "SyncChat", "SyncReply"]

T = TypeVar("T")


class LoopThread:
    """An event loop in its own thread, until :meth:`close`."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="usechat client", daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Run a coroutine in the loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def call(self, function: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Call a function in the loop, wait for it and return its result."""
        if self._is_current() or self.is_closed:  # a callback of the chat; or nothing runs beside this thread any more
            return function(*arguments, **options)

        async def called() -> T:
            return function(*arguments, **options)

        return self.submit(called()).result()

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop, wait for it and return its result."""
        if self._is_current():
            work.close()
            raise InvalidSetting("a callback cannot wait for an answer: nothing arrives before it has returned")
        if self.is_closed:
            work.close()
            raise InvalidSetting("this chat is closed; make a new one, with its messages")
        return self.submit(work).result()

    @property
    def is_closed(self) -> bool:
        """Whether the loop has ended."""
        return self.loop.is_closed()

    def close(self) -> None:
        """Stop the loop and end the thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()

    def _is_current(self) -> bool:
        return threading.current_thread() is self._thread

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()


class SyncReply:
    """A request that runs: iterate it for its updates, or :meth:`wait` for its end. Both raise what went wrong.

    >>> import httpx2
    >>> from usechat.client import HttpChatTransport
    >>> from usechat.server import ChatApp
    >>> server = httpx2.ASGITransport(app=ChatApp(lambda turn: "It is sunny."))
    >>> with SyncChat(HttpChatTransport("http://localhost/api/chat", http=server)) as chat:
    ...     chat.send("What is the weather in Paris?").wait().text
    'It is sunny.'
    """

    def __init__(self, thread: LoopThread, reply: Reply) -> None:
        self._thread = thread
        self._reply = reply

    def wait(self) -> MessageView:
        """Wait for the end and return the last message, which is empty if there is none."""
        return self._thread.wait_for(self._wait())

    def __iter__(self) -> Iterator[Update]:
        updates = aiter(self._reply)
        while (update := self._thread.wait_for(_next(updates))) is not None:
            yield update

    async def _wait(self) -> MessageView:
        return await self._reply


async def _next(updates: Any) -> Update | None:
    update: Update | None = await anext(updates, None)
    return update


class SyncChat:
    """A :class:`~usechat.client.Chat` for programs without an event loop; its methods may be called from any thread.

    It takes what :class:`~usechat.client.Chat` takes. Callbacks are called in the thread of the loop: they may call
    ``add_tool_output``, but cannot wait for a reply. A transport belongs to the chat, which closes its connections.

    >>> import httpx2
    >>> from usechat.client import HttpChatTransport
    >>> from usechat.server import ChatApp
    >>> server = httpx2.ASGITransport(app=ChatApp(lambda turn: "It is sunny."))
    >>> with SyncChat(HttpChatTransport("http://localhost/api/chat", http=server)) as chat:
    ...     for update in chat.send("What is the weather in Paris?"):
    ...         print(update.text_delta, end="")
    It is sunny.
    """

    def __init__(self, transport: ChatTransport | str, **options: Any) -> None:
        self._transport = transport
        self._thread = LoopThread()
        try:
            self._chat = self._thread.call(Chat, transport, **options)
        except BaseException:
            self._thread.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop what runs, close the connections, and end the thread. The messages can still be read."""
        if not self._thread.is_closed:
            self._thread.wait_for(self._aclose())
            self._thread.close()

    async def _aclose(self) -> None:
        await self._chat.aclose()
        close = getattr(self._transport, "aclose", None)
        if close is not None:  # also of a transport that was given: its connections end with the loop
            await close()

    @property
    def id(self) -> str:
        """The chat's id."""
        return self._chat.id

    @property
    def messages(self) -> list[UIMessage]:
        """The messages as the page would show them. Assign a list to replace them."""
        return self._thread.call(lambda: self._chat.messages)

    @messages.setter
    def messages(self, messages: Sequence[UIMessage]) -> None:
        self._thread.call(setattr, self._chat, "messages", messages)

    @property
    def last(self) -> MessageView | None:
        """The last message; ``None`` if there is none."""
        return self._thread.call(lambda: self._chat.last)

    @property
    def status(self) -> Status:
        """``submitted``, ``streaming``, ``ready`` or ``error``."""
        return self._chat.status

    @property
    def error(self) -> Exception | None:
        """What went wrong, while the status is ``error``."""
        return self._chat.error

    def clear_error(self) -> None:
        """Set the status from ``error`` to ``ready``."""
        self._thread.call(self._chat.clear_error)

    def send(
        self,
        text: str | None = None,
        *,
        files: Sequence[FileUIPart | Path | str] = (),
        metadata: Any = None,
        message_id: str | None = None,
        body: Mapping[str, Any] = {},
    ) -> SyncReply:
        """Send a message of the user, or the messages as they are if it has neither text nor files.

        The arguments are those of :meth:`Chat.send`.
        """
        return self._reply(self._chat.send, text, files=files, metadata=metadata, message_id=message_id, body=body)

    def regenerate(self, message_id: str | None = None, *, body: Mapping[str, Any] = {}) -> SyncReply:
        """Ask for the last answer again, or for the one that ``message_id`` names or follows.

        ``body`` is merged into the request.
        """
        return self._reply(self._chat.regenerate, message_id, body=body)

    def resume(self) -> SyncReply:
        """Read the answer that is being written, from its start; do nothing if there is none."""
        return self._reply(self._chat.resume)

    def stop(self) -> None:
        """Stop the answer that is being received; what has arrived of it stays."""
        if not self._thread.is_closed:
            self._thread.wait_for(self._chat.stop())

    def add_tool_output(self, call_id: str, output: Any = None, *, error_text: str | None = None) -> SyncReply:
        """Give the output of a client-side tool. The arguments are those of :meth:`Chat.add_tool_output`."""
        return self._reply(self._chat.add_tool_output, call_id, output, error_text=error_text)

    def add_approval_response(self, approval_id: str, approved: bool, reason: str | None = None) -> SyncReply:
        """Answer an approval request."""
        return self._reply(self._chat.add_approval_response, approval_id, approved, reason)

    def _reply(self, start: Callable[..., Reply], *arguments: Any, **options: Any) -> SyncReply:
        if self._thread.is_closed:
            raise InvalidSetting("this chat is closed; make a new one, with its messages")
        return SyncReply(self._thread, self._thread.call(start, *arguments, **options))
