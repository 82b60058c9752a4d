"""Build the wheel, install it into an empty environment of each Python, and use it there: `make wheel`.

In further empty environments the steps of the GitHub Action (`action.yml`) install the checkout, and the wheel, and
check a stream. `usechat new` of the wheel makes projects, whose packages are installed and whose tests are run.
Arguments are the versions of Python; one that is not on this machine is named and left out.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Final

import yaml

from scripts.dist import UV, build, run_checks, wheel_checks
from scripts.generate_docs import ROOT
from usechat import __version__
from usechat.starter.project import FRAMEWORKS

PATIENCE: Final = 60.0
QUESTION: Final = {
    "id": "chat-1",
    "messages": [{"id": "message-1", "role": "user", "parts": [{"type": "text", "text": "How do I resume?"}]}],
}
CHUNKS: Final = (
    '{"type":"start","messageId":"message-2"}',
    '{"type":"text-start","id":"1"}',
    '{"type":"text-delta","id":"1","delta":"Hello"}',
    '{"type":"text-end","id":"1"}',
    '{"type":"finish"}',
    "[DONE]",
)


def try_with(version: str, wheel: Path, directory: Path) -> bool:
    """Install the wheel for a version of Python and ask its demo; tell whether that Python is there."""
    environment = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    find = [UV, "python", "find", "--system", version]
    if subprocess.run(find, capture_output=True, env=environment, check=False).returncode:
        return False
    python = make_environment(version, directory, environment)
    install = [UV, "pip", "install", "--quiet", "--python", str(python), f"usechat[demo] @ {wheel.as_uri()}"]
    subprocess.run(install, check=True, env=environment)
    usechat = directory / "bin" / "usechat"
    output = subprocess.run([usechat, "--version"], check=True, capture_output=True, text=True, cwd=directory).stdout
    assert __version__ in output, output
    assert "serve an agent" in subprocess.run([usechat, "--help"], check=True, capture_output=True, text=True).stdout
    ask_demo(usechat, directory)
    return True


def make_environment(version: str, directory: Path, environment: dict[str, str], *options: str) -> Path:
    """Make an empty virtual environment and return its Python."""
    command = [UV, "venv", "--quiet", *options, "--python", version, str(directory)]
    subprocess.run(command, check=True, env=environment)
    return directory / "bin" / "python"


def try_action(python: str, directory: Path, **inputs: str) -> None:
    """Let the GitHub Action install usechat and check a stream, as a runner does."""
    environment = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    scripts = make_environment(python, directory, environment, "--seed").parent
    (directory / "good.sse").write_text("".join(f"data: {chunk}\n\n" for chunk in CHUNKS))
    steps = ("Install usechat", "Check")
    installed, checked = (run_step(each, directory, scripts, inputs="*.sse", **inputs) for each in steps)
    assert installed.returncode == 0, installed.stderr
    assert checked.stdout == "good.sse: accepted. AI SDK 5, 6 and 7 accept this stream.\n", checked.stdout


def try_starter(wheel: Path, directory: Path, version: str) -> None:
    """Make a project for each framework with the wheel; install what it needs, and run its tests."""
    environment = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    for framework in FRAMEWORKS:
        project = directory / f"{framework}-chat"
        new = ["usechat", "new", str(project), "--framework", framework, "--page", "none"]
        run_uv("uvx", "--from", str(wheel), *new, directory=directory, environment=environment)
        run_uv("uv", "sync", "--python", version, directory=project, environment=environment)
        run_uv("uv", "run", "pytest", "-q", directory=project, environment=environment)


def run_uv(program: str, *arguments: str, directory: Path, environment: dict[str, str]) -> None:
    """Run uv or uvx in a directory; it must succeed."""
    command = [str(Path(UV).with_name(program)), *arguments]
    ran = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"{command}\n{ran.stdout}{ran.stderr}"


def run_step(name: str, directory: Path, scripts: Path, **inputs: str) -> "subprocess.CompletedProcess[str]":
    """Run a step of the GitHub Action with the commands in ``scripts``, and the defaults of the inputs not given."""
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    values = {name: settings.get("default", "") for name, settings in action["inputs"].items()} | inputs
    [step] = [step for step in action["runs"]["steps"] if step["name"] == name]
    variables = {
        variable: re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda match: values[match[1]], text)
        for variable, text in step["env"].items()
    }
    variables["GITHUB_ACTION_PATH"] = str(ROOT)
    variables["PATH"] = os.pathsep.join([str(scripts), os.environ["PATH"]])
    command = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", step["run"]]  # as a runner calls it
    return subprocess.run(
        command, cwd=directory, env=os.environ | variables, capture_output=True, text=True, check=False
    )


def ask_demo(usechat: Path, directory: Path) -> None:
    """Start the demo, load its page and ask it a question."""
    log = directory / "demo.log"
    with log.open("w") as output:
        demo = subprocess.Popen([usechat, "demo", "--port", "0"], cwd=directory, stdout=output, stderr=output)
    try:
        address = _address_in(log, demo)
        with urllib.request.urlopen(address, timeout=PATIENCE) as page:
            assert b"<html" in page.read()
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(f"{address}/api/chat", json.dumps(QUESTION).encode(), headers)
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            body = answer.read().decode()
        assert '"type":"finish"' in body, body
        assert "resume: true" in body, body
    finally:
        demo.terminate()
        demo.wait(PATIENCE)


def _address_in(log: Path, demo: "subprocess.Popen[bytes]") -> str:
    end = time.monotonic() + PATIENCE
    while not (match := re.search(r" at (http://[\d.:]+)$", log.read_text(), re.MULTILINE)):
        assert demo.poll() is None, log.read_text()
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.05)
    return match[1]


def main(versions: list[str]) -> None:
    """Try the wheel with each version."""
    with tempfile.TemporaryDirectory() as name:
        wheel = next(build("--wheel", into=Path(name)).glob("*.whl"))
        is_small = run_checks(wheel_checks(wheel))
        for what, inputs in {"checkout": {}, wheel.name: {"version": str(wheel)}}.items():
            begin = time.monotonic()
            try_action(versions[0], Path(name) / f"action-{what}", **inputs)
            sys.stdout.write(f"== {what} in the GitHub Action: works ({time.monotonic() - begin:.0f} s)\n")
        begin = time.monotonic()
        (Path(name) / "starter").mkdir()
        try_starter(wheel, Path(name) / "starter", versions[0])
        sys.stdout.write(f"== {wheel.name} makes projects: work ({time.monotonic() - begin:.0f} s)\n")
        for version in versions:
            begin, directory = time.monotonic(), Path(name) / version
            is_there = try_with(version, wheel, directory)
            outcome = f"works ({time.monotonic() - begin:.0f} s)" if is_there else "is absent: not tried"
            sys.stdout.write(f"== {wheel.name} with Python {version}: {outcome}\n")
            shutil.rmtree(directory, ignore_errors=True)
    assert is_small, "see FAILED above: `make dist` refuses this wheel"


if __name__ == "__main__":
    main(sys.argv[1:])
