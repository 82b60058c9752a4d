"""The browser and the fonts are those that the tests bring, whatever the machine has."""

import os
from pathlib import Path

import pytest

from tests.browser.chromium import CARRIED, NAMES, find_chromium


@pytest.fixture
def machine_with_browsers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine on which every browser that we know is installed; return where."""
    for name in NAMES:
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path), os.environ["PATH"]]))
    monkeypatch.delenv("USECHAT_CHROMIUM", raising=False)
    return tmp_path


@pytest.mark.usefixtures("machine_with_browsers")
def test_a_browser_of_the_machine_is_not_used() -> None:
    chromium = find_chromium()
    assert CARRIED in Path(chromium.path).parents
    assert CARRIED in Path(chromium.environment["FONTCONFIG_FILE"]).parents


def test_a_browser_that_is_named_is_used(machine_with_browsers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USECHAT_CHROMIUM", str(machine_with_browsers / "chromium"))
    assert find_chromium() == (str(machine_with_browsers / "chromium"), {})
