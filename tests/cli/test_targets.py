"""What `usechat serve --as` finds for each kind, and what it says when an extra is missing."""

import subprocess
import sys
from pathlib import Path

import pytest

from usechat.cli import main
from usechat.cli.targets import kind_of


@pytest.mark.parametrize(
    ("target", "kind"),
    [("flow.yaml", "open-harness"), ("flows/other.yml", "open-harness"), ("my_app:agent", None), ("wss://a", None)],
)
def test_a_flow_file_shows_its_kind_by_itself(target: str, kind: str | None) -> None:
    assert kind_of(target) == kind


def test_other_kinds_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["serve", "--as", "telepathy", "mind"])
    assert raised.value.code == 2
    assert "invalid choice: 'telepathy'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("package", "arguments", "sentence"),
    [
        (
            "sqlalchemy",
            ["--as", "agent-ops", "wss://example.org"],
            "sqlalchemy is not installed; run: pip install 'usechat[agent-ops]'",
        ),
        ("yaml", ["flow.yaml"], "pyyaml is not installed; run: pip install 'usechat[open-harness]'"),
        (
            "yaml",
            ["--as", "open-harness", "x.yml"],
            "pyyaml is not installed; run: pip install 'usechat[open-harness]'",
        ),
    ],
)
def test_a_missing_extra_is_one_sentence(tmp_path: Path, package: str, arguments: list[str], sentence: str) -> None:
    for name in ("flow.yaml", "x.yml"):
        (tmp_path / name).write_text("name: empty\n")
    program = (
        f"import sys; sys.modules[{package!r}] = None; from usechat.cli import main;"
        f" sys.exit(main(['serve', '--port', '0', *{arguments!r}]))"
    )
    failed = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert (failed.returncode, failed.stdout, failed.stderr) == (2, "", f"usechat: {sentence}\n")
