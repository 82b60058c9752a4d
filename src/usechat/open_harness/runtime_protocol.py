"""What a runtime of flows looks like to those who use one, be it ours, a remote one or a foreign object."""

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
"""A RuntimeEvent with the keys of the wire: ``type``, ``timestamp`` (milliseconds) and those of its type."""

Command: TypeAlias = Mapping[str, Any]
"""A RuntimeCommand with the keys of the wire: ``send``, ``reply``, ``abort``, ``resume``, ``pause`` or ``stop``."""

Snapshot: TypeAlias = Mapping[str, Any]
"""A RunSnapshot with the keys of the wire: ``runId``, ``status``, ``outputs``, ``state``, ``nodeStatus`` and so on."""

Listener: TypeAlias = Callable[[Event], None]


@runtime_checkable
class Runtime(Protocol):
    """One run of one flow; it is used once. Events reach listeners in the loop's thread, in their order."""

    async def run(self, input: Mapping[str, Any] | None = None) -> Snapshot:  # noqa: A002
        """Run the flow; return when it is complete, failed, paused or stopped."""
        ...

    async def resume(self, message: str | None = None) -> Snapshot:
        """Go on with a paused flow, with what the user said; return as ``run`` does."""
        ...

    def pause(self) -> None:
        """Ask the flow to pause; ``run`` returns when it has."""
        ...

    def stop(self) -> None:
        """Ask the flow to stop for good; ``run`` returns when its nodes have gone."""
        ...

    def dispatch(self, command: Command) -> None:
        """Take a command, such as ``send`` with a ``message`` and the ``runId`` of a node's invocation."""
        ...

    def on_event(self, listener: Listener) -> Callable[[], None]:
        """Call the listener with every event from now on; return what ends that."""
        ...

    def get_snapshot(self) -> Snapshot:
        """Return how the run stands."""
        ...


# -- Who hears the events of a runtime.

_logger: Final = logging.getLogger("usechat.open_harness")


class Listeners:
    """The listeners of one runtime. One that fails is logged, and the others hear on."""

    def __init__(self) -> None:
        self._listeners: dict[object, Listener] = {}

    def add(self, listener: Listener) -> Callable[[], None]:
        """Call the listener with every event from now on; return what ends that."""
        key = object()
        self._listeners[key] = listener

        def leave() -> None:
            self._listeners.pop(key, None)

        return leave

    def tell(self, event: Event) -> None:
        """Tell an event to all, in the order in which they came."""
        for listener in list(self._listeners.values()):
            try:
                listener(event)
            except Exception:  # one listener's failure is not the others'
                _logger.exception("a listener failed at %s", event.get("type") or event.get("name"))
