"""Log lines that strangers cause: one a minute about the same, and nothing is left out without a count."""

import logging

import pytest

from usechat.server.rare_lines import RareLines

pytestmark = pytest.mark.quick


class Log:
    """Lines of a log whose clock the test sets."""

    def __init__(self, caplog: pytest.LogCaptureFixture, maximum: int = 1000) -> None:
        self._caplog = caplog
        self.now = 0.0
        self.lines = RareLines(logging.getLogger("usechat.test"), maximum=maximum, clock=lambda: self.now)

    def refuse(self, address: str, reason: str = "the host is foreign", times: int = 1) -> None:
        for _ in range(times):
            self.lines.warning((address, reason), "%s was refused: %s", address, reason)

    def written(self) -> list[str]:
        texts = [record.getMessage() for record in self._caplog.records]
        self._caplog.clear()
        return texts


def test_the_same_is_written_once_a_minute_and_then_counted(caplog: pytest.LogCaptureFixture) -> None:
    log = Log(caplog)
    log.refuse("10.0.0.1", times=100)
    assert log.written() == ["10.0.0.1 was refused: the host is foreign"]
    log.now = 59.9
    log.refuse("10.0.0.1")
    assert log.written() == []
    log.now = 60.0
    log.refuse("10.0.0.1")
    assert log.written() == ["10.0.0.1 was refused: the host is foreign (100 more in the last 60 s)"]
    log.now = 120.0
    log.refuse("10.0.0.1")
    assert log.written() == ["10.0.0.1 was refused: the host is foreign"], "nothing was left out"


def test_another_address_and_another_reason_have_lines_of_their_own(caplog: pytest.LogCaptureFixture) -> None:
    log = Log(caplog)
    log.refuse("10.0.0.1", times=2)
    log.refuse("10.0.0.2", times=2)
    log.refuse("10.0.0.1", "the origin is foreign", times=2)
    assert log.written() == [
        "10.0.0.1 was refused: the host is foreign",
        "10.0.0.2 was refused: the host is foreign",
        "10.0.0.1 was refused: the origin is foreign",
    ]


def test_what_was_left_out_is_told_with_the_next_line_of_anybody(caplog: pytest.LogCaptureFixture) -> None:
    log = Log(caplog)
    log.refuse("10.0.0.1", times=5)
    log.refuse("10.0.0.2")
    log.written()
    log.now = 300.0
    log.refuse("10.0.0.3")
    assert log.written() == [
        "10.0.0.1 was refused: the host is foreign (4 more in the last 300 s)",
        "10.0.0.3 was refused: the host is foreign",
    ]


def test_many_addresses_fill_neither_the_log_nor_the_memory(caplog: pytest.LogCaptureFixture) -> None:
    log = Log(caplog, maximum=3)
    for number in range(50):
        log.refuse(f"10.0.0.{number}")
    assert log.written() == [
        "10.0.0.0 was refused: the host is foreign",
        "10.0.0.1 was refused: the host is foreign",
        "10.0.0.2 was refused: the host is foreign",
        "10.0.0.3 was refused: the host is foreign; more lines of others are left out",
    ]
    log.now = 60.0
    log.refuse("10.0.0.1")
    assert log.written() == [
        "10.0.0.3 was refused: the host is foreign; more lines of others are left out (46 more in the last 60 s)",
        "10.0.0.1 was refused: the host is foreign",
    ]
