"""The logging configuration that uvicorn gets."""

import json
import logging
import logging.config

import pytest
from uvicorn.config import LOGGING_CONFIG

from usechat.server.uvicorn import LogFormat, log_config

pytestmark = pytest.mark.usefixtures("logging_as_before")


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
    output = capsys.readouterr().err.splitlines()
    if style == "text":
        assert output == lines
    else:
        keys = ("level", "text", "run_id")
        assert [{key: line[key] for key in keys if key in line} for line in map(json.loads, output)] == lines


def test_the_configuration_of_others_is_left_alone() -> None:
    log_config("json")
    assert "usechat" not in LOGGING_CONFIG["loggers"]
