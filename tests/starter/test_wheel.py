"""The wheel that a project gets is what `make wheel` builds: an installer takes it, and it works."""

import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path

from scripts.dist import IN_WHEEL, UV
from usechat.starter.wheel import wheel


def test_the_wheel_holds_what_a_published_one_holds() -> None:
    _, content = wheel()
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = archive.namelist()
    assert set(IN_WHEEL) <= set(names)
    assert [name for name in names if "__pycache__" in name or name.endswith((".pth", "direct_url.json"))] == []
    assert len(content) < 4_000_000


def test_the_same_usechat_makes_the_same_wheel() -> None:
    assert wheel() == wheel()


def test_an_installer_takes_the_wheel_and_its_documentation_is_found(tmp_path: Path) -> None:
    name, content = wheel()
    (tmp_path / name).write_bytes(content)
    target = tmp_path / "installed"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    install = [UV, "pip", "install", "--quiet", "--offline", "--no-deps", "--target", str(target), str(tmp_path / name)]
    subprocess.run(install, check=True, env=environment)
    program = f"import sys; sys.path.insert(0, {str(target)!r}); from usechat_program import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "docs", "stop button"]
    found = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path, env=environment).stdout
    assert str(target / "usechat" / "docs" / "resume.md") in found
