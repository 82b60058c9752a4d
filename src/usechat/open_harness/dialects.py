"""Which of the three dialects an event is in: that of runs, of sessions or of signals."""

from collections.abc import Mapping
from typing import Any

from usechat.open_harness.interface import Event
from usechat.open_harness.sessions_dialect import SessionDialect
from usechat.open_harness.signals_dialect import SignalDialect

__all__ = ["Dialects"]


class Dialects:
    """Says every event in the words of a flow's run."""

    def __init__(self) -> None:
        self._sessions = SessionDialect()
        self._signals = SignalDialect()

    def read(self, event: Any) -> list[Event] | None:
        """Return what an event says: itself, if it is one of a run; nothing if it is none at all."""
        if not isinstance(event, Mapping):
            return None
        if "type" in event:
            return [event]
        name, payload, timestamp = event.get("name"), event.get("payload"), event.get("timestamp")
        if not isinstance(name, str):
            return None
        fields = payload if isinstance(payload, Mapping) else {}
        if "source" in event or isinstance(timestamp, str) or name.startswith("harness:"):
            return self._signals.read(name, fields, event.get("source"), timestamp)
        return self._sessions.read(name, fields, timestamp)
