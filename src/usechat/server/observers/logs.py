"""Structured logs: one JSON object per line, and a line for every run that ended. No message content is logged."""

import json
import logging
from datetime import UTC, datetime
from typing import Any, Final

from usechat.runs.run import RunInfo
from usechat.server.observers.observer import AppRequest, Observer

__all__ = ["FIELDS", "JsonFormatter", "LoggingObserver"]

FIELDS: Final = ("chat_id", "run_id", "reference", "state", "seconds", "kind")
"""The keys of ``extra`` that are written. Nothing else is, so that nothing gets into a log by accident."""

_KINDS_NAMED: Final = 100

_logger: Final = logging.getLogger("usechat.server")


class JsonFormatter(logging.Formatter):
    """A ``logging`` formatter that writes a record as one JSON object on one line.

    >>> import json, logging
    >>> record = logging.makeLogRecord({"msg": "run r1 ended", "name": "usechat.server", "run_id": "r1"})
    >>> json.loads(JsonFormatter().format(record))["run_id"]
    'r1'
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "text": record.getMessage(),
        }
        line |= {field: value for field in FIELDS if (value := getattr(record, field, None)) is not None}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class LoggingObserver(Observer):
    """Logs a line when a run ends, when a source cannot be reached, and for unknown events."""

    def __init__(self) -> None:
        self._kinds: set[str] = set()

    def run_ended(self, info: RunInfo, seconds: float) -> None:
        """Log how it ended."""
        _logger.info(
            "run %s of chat %s %s after %.3f s",
            info.run_id,
            info.chat_id,
            info.state,
            seconds,
            extra={
                "chat_id": info.chat_id,
                "run_id": info.run_id,
                "state": str(info.state),
                "seconds": round(seconds, 3),
            },
        )

    def app_requested(self, request: AppRequest) -> None:
        """Log who has let an app do what."""
        _logger.info(
            "an app of chat %s %s for %r: %s %r of %r",
            request.chat_id,
            request.outcome,
            request.subject,
            request.method,
            request.name,
            request.server,
            extra={"chat_id": request.chat_id, "kind": request.method, "state": request.outcome},
        )

    def source_unreachable(self) -> None:
        """Log it."""
        _logger.warning("an upstream connection could not be opened")

    def event_unknown(self, kind: str) -> None:
        """Log each kind once: a source that changed its protocol would fill the log."""
        if kind not in self._kinds and len(self._kinds) < _KINDS_NAMED:
            self._kinds.add(kind)
            _logger.warning("the source sent an event of unknown kind %.100r", kind, extra={"kind": kind[:100]})
