"""The page about Genkit: its code runs, and its sentences are the ones that are said."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.conformance.served import serving
from tests.genkit.asking import answer, asked, user
from usechat.genkit import GenkitChatTransport, errors
from usechat.genkit.inputs import INPUTS
from usechat.genkit.wire import FlowFailure

PAGE = (Path(__file__).parent.parent.parent / "docs" / "genkit.md").read_text(encoding="utf-8")


def test_the_code_runs() -> None:
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        names: dict[str, Any] = {"__name__": "example"}
        exec(compile(block, "docs/genkit.md", "exec"), names)


def test_the_inputs_are_all_there() -> None:
    table = dict(re.findall(r"^\| `#([\w-]+)`[^|]*\| `(\w+)`", PAGE, re.MULTILINE))
    assert {name: builder.__name__ for name, builder in INPUTS.items()} == table


def test_the_sentences_are_the_ones_that_are_said() -> None:
    rows = re.findall(r"^\| ([^|]*) \| (The agent [^|]*|The connection [^|]*|An error [^|]*) \|$", PAGE, re.MULTILINE)
    sentences = {sentence for _, sentence in rows}
    statuses = [status for happened, _ in rows for status in re.findall(r"`([A-Z_]+)`", happened)]
    expected = {errors.sentence_of(FlowFailure(status)) for status in statuses}
    assert sentences == expected | {errors.UNREACHABLE, errors.INCOMPLETE, errors.ERROR_PAGE}


DEVELOPED = """
import asyncio

from genkit import Genkit
from pydantic import BaseModel


class Question(BaseModel):
    question: str


ai = Genkit()  # from here on the reflection server starts, in a thread


@ai.flow()
async def ask(asked: Question) -> str:
    return asked.question


ai.run_main(asyncio.Event().wait())
"""


@pytest.fixture
def developed(tmp_path: Path) -> Iterator[Path]:
    """The directory of a Python process with a flow, which Genkit runs in development."""
    environment = {**os.environ, "GENKIT_ENV": "dev"}
    process = subprocess.Popen([sys.executable, "-c", DEVELOPED], cwd=tmp_path, env=environment)
    try:
        yield tmp_path
    finally:
        process.kill()
        process.wait()


async def test_the_address_of_pythons_reflection_server_is_where_the_page_says(developed: Path) -> None:
    match = re.search(r"Python chooses a free port\. The file `([^`]+)` in [^`]*\shas\sthe\saddress: `(\w+)`", PAGE)
    assert match is not None
    bodies: list[Any] = []

    async def ask(request: Request) -> Response:
        bodies.append(await request.json())
        return Response('data: {"result":"Hi"}\n\n')

    address = address_in(developed, match[1], match[2])
    with serving({"": Starlette(routes=[Route("/ask", ask, methods=["POST"])])}) as running:
        transport = GenkitChatTransport(f"http://127.0.0.1:{running.port}/ask", reflection=address)
        await answer(transport, asked(user("hi")))
    assert bodies == [{"data": {"question": "hi"}}]


def address_in(directory: Path, pattern: str, key: str) -> str:
    """Wait for the file that a process writes when it has started, and return an entry of it."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for text in (file.read_text(encoding="utf-8") for file in directory.glob(pattern)):
            if text.endswith("}"):  # it may still be written
                return str(json.loads(text)[key])
        time.sleep(0.05)
    raise AssertionError(f"{pattern} has not come")
