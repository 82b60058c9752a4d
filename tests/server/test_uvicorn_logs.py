"""The logging configuration that uvicorn gets."""

import json
import logging
import logging.config
from collections.abc import Iterator

import pytest
from uvicorn.config import LOGGING_CONFIG

from usechat.server.uvicorn import LogFormat, log_config

NAMES = ("usechat", "uvicorn", "uvicorn.error", "uvicorn.access")


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in NAMES]
    before = [(logger.handlers[:], logger.level, logger.propagate) for logger in loggers]
    yield
    for logger, (handlers, level, propagate) in zip(loggers, before, strict=True):
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


@pytest.mark.parametrize(
    ("style", "lines"),
    [
        ("text", ["INFO:     run r1 ended", "ERROR:    It broke."]),
        ("json", [{"level": "info", "text": "run r1 ended", "run_id": "r1"}, {"level": "error", "text": "It broke."}]),
    ],
)
def test_lines(style: LogFormat, lines: list[object], capsys: pytest.CaptureFixture[str]) -> None:
    logging.config.dictConfig(log_config(style))
    logging.getLogger("usechat.server").info("run %s ended", "r1", extra={"run_id": "r1"})
    logging.getLogger("uvicorn.error").error("ASGI callable returned without completing response.")
    logging.getLogger("uvicorn.error").error("It broke.")
    written = capsys.readouterr().err.splitlines()
    if style == "text":
        assert written == lines
    else:
        keys = ("level", "text", "run_id")
        assert [{key: line[key] for key in keys if key in line} for line in map(json.loads, written)] == lines


def test_the_configuration_of_others_is_left_alone() -> None:
    log_config("json")
    assert "usechat" not in LOGGING_CONFIG["loggers"]
