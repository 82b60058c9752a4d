"""Who hears the events of a runtime."""

import logging
from collections.abc import Callable
from typing import Final

from usechat.open_harness.interface import Event, Listener

__all__ = ["Listeners"]

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
