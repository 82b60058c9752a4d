"""How `usechat serve` sets up logging, for people or as JSON."""

import copy
import logging
from typing import Any, Literal, TypeAlias

from uvicorn.config import LOGGING_CONFIG

from usechat.server.observers.logs import JsonFormatter

__all__ = ["LogFormat", "OnPurpose", "log_config"]

LogFormat: TypeAlias = Literal["text", "json"]


def log_config(style: LogFormat) -> dict[str, Any]:
    """Return uvicorn's configuration of logging with our loggers in it."""
    config = copy.deepcopy(LOGGING_CONFIG)
    config["filters"] = {"on-purpose": {"()": OnPurpose}}
    config["handlers"]["default"]["filters"] = ["on-purpose"]
    config["loggers"]["usechat"] = {"handlers": ["default"], "level": "INFO", "propagate": False}
    if style == "json":
        config["formatters"] = {name: {"()": JsonFormatter} for name in config["formatters"]}
    return config


class OnPurpose(logging.Filter):
    """Drops uvicorn's complaint about a response without its end: a reader that must resume is broken off like that."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether to keep a record."""
        return record.msg != "ASGI callable returned without completing response."
