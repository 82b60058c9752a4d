"""The pytest plugin costs nothing until it is used."""

import subprocess
import sys
from pathlib import Path


def test_the_plugin_imports_nothing_of_usechat() -> None:
    program = "import sys, pytest, pytest_usechat; print([name for name in sys.modules if name.startswith('usechat')])"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_the_fixture_is_there_in_any_project(tmp_path: Path) -> None:
    test = tmp_path / "test_agent.py"
    test.write_text(
        "def test_agent(usechat_client):\n"
        "    answer = usechat_client(lambda turn: f'It is {turn.text}').ask('warm')\n"
        "    answer.assert_legal(sdk='any')\n"
        "    assert answer.text == 'It is warm'\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(test)]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
