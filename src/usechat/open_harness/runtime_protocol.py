"""The interface of a flow runtime: the built-in engine, a remote flow, or an object that you write."""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

__all__ = [
    "Command",
    "Event",
    "Listener",
    "Listeners",
    "Runtime",
    "Snapshot",
]


Event: TypeAlias = Mapping[str, Any]
"""A RuntimeEvent with the keys of the wire: ``type``, ``timestamp`` (milliseconds) and the keys of its type."""

Command: TypeAlias = Mapping[str, Any]
"""A RuntimeCommand with the keys of the wire: ``send``, ``reply``, ``abort``, ``resume``, ``pause`` or ``stop``."""

Snapshot: TypeAlias = Mapping[str, Any]
"""A RunSnapshot with the keys of the wire: ``runId``, ``status``, ``outputs``, ``state``, ``nodeStatus`` and so on."""

Listener: TypeAlias = Callable[[Event], None]


@runtime_checkable
class Runtime(Protocol):
    """One run of one flow. It runs once; listeners are called in the thread of the event loop, in order.

    :class:`FlowRuntime`, :class:`RemoteRuntime` and what :class:`RemoteSessions` returns implement it. Any object with
    these methods can answer a chat:

    >>> from usechat.open_harness import FlowRuntime
    >>> flow = {"name": "echo", "nodes": [{"id": "a", "type": "echo", "input": {"text": "Hi"}}]}
    >>> isinstance(FlowRuntime(flow), Runtime)
    True
    """

    async def run(self, input: Mapping[str, Any] | None = None) -> Snapshot:  # noqa: A002
        """Run the flow; return when it is complete, failed, paused or stopped."""
        ...

    async def resume(self, message: str | None = None) -> Snapshot:
        """Resume a paused flow with the user's message; return as ``run`` does."""
        ...

    def pause(self) -> None:
        """Pause the flow; ``run`` returns when it has."""
        ...

    def stop(self) -> None:
        """Stop the flow for good; ``run`` returns when its nodes have ended."""
        ...

    def dispatch(self, command: Command) -> None:
        """Execute a command, such as ``send`` with a ``message`` and the ``runId`` of a node's invocation."""
        ...

    def on_event(self, listener: Listener) -> Callable[[], None]:
        """Call the listener with every event from now on; return a function that removes it."""
        ...

    def get_snapshot(self) -> Snapshot:
        """Return a snapshot of the run."""
        ...


_logger: Final = logging.getLogger("usechat.open_harness")


class Listeners:
    """The listeners of one runtime. A listener that fails is logged; the others are still called."""

    def __init__(self) -> None:
        self._listeners: dict[object, Listener] = {}

    def add(self, listener: Listener) -> Callable[[], None]:
        """Call the listener with every event from now on; return a function that removes it."""
        key = object()
        self._listeners[key] = listener

        def remove() -> None:
            self._listeners.pop(key, None)

        return remove

    def notify(self, event: Event) -> None:
        """Call all listeners with an event, in the order in which they were added."""
        for listener in list(self._listeners.values()):
            try:
                listener(event)
            except Exception:  # the other listeners must be called
                _logger.exception("a listener failed at %s", event.get("type") or event.get("name"))
