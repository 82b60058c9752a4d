"""Files that are read again when they have changed."""

import os
import time
from pathlib import Path

import pytest

from usechat.errors import UnusableFile
from usechat.server.auth.tokens import WatchedFile


class Counting:
    """Parses a number and counts how often."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, content: bytes) -> int:
        self.calls += 1
        return int(content)


def make_old(path: Path) -> None:
    """Set back the file's times, and wait until its last change is past, whatever the system calls it."""
    os.utime(path, (1, 1))
    time.sleep(2.1)


def test_a_change_is_seen_at_once_even_of_equal_length(tmp_path: Path) -> None:
    path = tmp_path / "number"
    path.write_text("1")
    file = WatchedFile(path, int)
    contents = []
    for number in range(2, 9):
        path.write_text(str(number))
        contents.append(file.read())
    assert contents == [2, 3, 4, 5, 6, 7, 8]


def test_a_change_of_a_file_at_rest_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "number"
    path.write_text("1")
    make_old(path)
    file = WatchedFile(path, int)
    assert [file.read() for _ in range(3)] == [1, 1, 1]
    path.write_text("2")
    assert file.read() == 2


def test_a_file_that_was_touched_is_not_parsed_again(tmp_path: Path) -> None:
    path = tmp_path / "number"
    path.write_text("1")
    parse = Counting()
    file = WatchedFile(path, parse)
    path.touch()
    assert (file.read(), parse.calls) == (1, 1)


def test_a_file_that_replaces_another_is_seen(tmp_path: Path) -> None:
    path, beside = tmp_path / "number", tmp_path / "beside"
    path.write_text("1")
    make_old(path)
    file = WatchedFile(path, int)
    beside.write_text("2")
    os.utime(beside, (1, 1))
    beside.replace(path)
    assert file.read() == 2


def test_a_broken_file_is_an_error_until_it_is_mended(tmp_path: Path) -> None:
    path = tmp_path / "number"
    path.write_text("1")
    file = WatchedFile(path, int)
    path.write_text("one")
    for _ in range(2):
        with pytest.raises(UnusableFile, match="number: invalid literal"):
            file.read()
    path.unlink()
    with pytest.raises(UnusableFile, match="number cannot be read: No such file"):
        file.read()
    path.write_text("2")
    assert file.read() == 2


def test_a_broken_file_is_an_error_from_the_start(tmp_path: Path) -> None:
    with pytest.raises(UnusableFile):
        WatchedFile(tmp_path, int)
