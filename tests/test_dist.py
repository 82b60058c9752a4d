"""What `make dist` refuses to publish."""

import os
import zipfile
from pathlib import Path

import pytest

from scripts.dist import IN_WHEEL, problems_of, run_checks, wheel_checks

COMPLETE = dict.fromkeys(IN_WHEEL, 1000)

pytestmark = pytest.mark.once


@pytest.mark.parametrize(
    ("names", "problems"),
    [
        (COMPLETE, []),
        (
            {name: size for name, size in COMPLETE.items() if "licenses.md" not in name},
            ["usechat/web/built/licenses.md is missing"],
        ),
        (
            COMPLETE | {"web/node_modules/ai/index.js": 1},
            ["web/node_modules/ai/index.js must not be published"],
        ),
        (COMPLETE | {"usechat/large.js": 10_000_000}, ["10.0 MB are more than 4 MB"]),
    ],
    ids=["complete", "without licences", "with foreign files", "too large"],
)
def test_an_archive_is_complete_clean_and_small(names: dict[str, int], problems: list[str]) -> None:
    assert [*problems_of(names, IN_WHEEL, 4_000_000)] == problems


def test_files_that_python_compiles_count_as_installed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wheel = tmp_path / "usechat.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in IN_WHEEL:
            archive.writestr(name, "")
        archive.writestr("usechat/large.py", f"TEXT = {os.urandom(1_700_000).hex()!r}\n")
    packed, installed = wheel_checks(wheel)
    assert packed.problems == []
    assert sum(installed.files.values()) > 1.9 * wheel.stat().st_size
    assert run_checks([packed])
    assert not run_checks([packed, installed._replace(largest=6_000_000)])
    assert capsys.readouterr().out.endswith("FAILED usechat.whl, installed: 6.8 MB are more than 6 MB\n")
