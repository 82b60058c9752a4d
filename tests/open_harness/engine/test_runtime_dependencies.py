"""Packages that are not installed are told at once, with the line that installs them."""

import subprocess
import sys

import pytest

AGENT = '{"id": "a", "type": "agent", "input": {"prompt": "x", "model": "test"}}'
ECHO = '{"id": "a", "type": "echo", "input": {"text": "{{ x }}"}}'


@pytest.mark.parametrize(
    ("module", "flow", "text"),
    [
        ("pydantic_ai", f'{{"name": "x", "nodes": [{AGENT}]}}', "pip install 'usechat[pydantic-ai]'"),
        ("jsonata", f'{{"name": "x", "nodes": [{ECHO}]}}', "pip install 'usechat[open-harness]'"),
        ("yaml", repr("name: x\nnodes: []\n"), "pip install 'usechat[open-harness]'"),
    ],
)
def test_a_missing_package_is_told_when_the_runtime_is_made(module: str, flow: str, text: str) -> None:
    program = f"""
import sys
sys.modules[{module!r}] = None
from usechat.errors import MissingDependency
from usechat.open_harness.engine.runtime import FlowRuntime
try:
    FlowRuntime({flow})
except MissingDependency as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert text in done.stdout
