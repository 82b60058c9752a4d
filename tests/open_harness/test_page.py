"""The page about Open Harness and the examples: their code runs, and does what is said of it."""

import asyncio
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.open_harness.serving import until
from usechat.open_harness import FlowRuntime, OpenHarnessChatTransport, load_flow
from usechat.open_harness.events.event import REQUIRED
from usechat.open_harness.nodes.builtin import default_registry
from usechat.protocol.chunks import TextDeltaChunk
from usechat.protocol.request import ChatRequest
from usechat.targets import load_object
from usechat.testing import AgentClient

ROOT = Path(__file__).parents[2]
PAGES = [
    (ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("open-harness.md", "open-harness-reference.md")
]
PAGE = "\n".join(PAGES)
EXAMPLES = ROOT / "examples" / "open_harness"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the files of the example, in which code may leave files of its own."""
    for file in EXAMPLES.iterdir():
        if file.is_file():
            shutil.copy(file, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in ("trip", "chat"):
        sys.modules.pop(name, None)


def request(text: str) -> ChatRequest:
    message = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": text}]}
    return ChatRequest.parse({"id": "c1", "messages": [message]})


async def answer(transport: OpenHarnessChatTransport, text: str) -> str:
    chunks = [chunk async for chunk in await transport.send_messages(request(text))]
    return "".join(chunk.delta for chunk in chunks if isinstance(chunk, TextDeltaChunk))


def names_of_the_page() -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "example"}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(block, "docs/open-harness-reference.md", "exec"), names)
    return names


EXPECTED = "It is 21 °C in Rome. It is 21 °C in Rome. Take sunglasses along. "


def test_the_example_answers_with_tools_and_data(folder: Path) -> None:
    with AgentClient(load_object(f"{folder / 'chat.py'}:transport")) as client:
        answer = client.ask("Rome")
        answer.assert_legal()
        assert answer.text == EXPECTED
        assert {tool.name: tool.output for tool in answer.tools if tool.state == "output-available"} == {
            "weather": {"celsius": 21}
        }
        assert answer.data["flow-status"][-1]["status"] == "complete"


@pytest.mark.usefixtures("folder")
async def test_the_code_of_the_page_runs() -> None:
    names = names_of_the_page()
    assert await answer(names["transport"], "Rome") == EXPECTED
    assert await answer(names["lasting"], "Rome") == EXPECTED
    names["store"].close()


@pytest.mark.usefixtures("folder")
async def test_the_interviewer_of_the_page_takes_messages_while_it_runs() -> None:
    names = names_of_the_page()
    names["store"].close()
    node = {"id": "interviewer", "type": "interview", "input": {"question": "Who are you?"}}
    flow = {"name": "interview", "nodes": [node], "edges": []}
    runtime = FlowRuntime(flow, registry=names["registry"])
    events: list[Any] = []
    runtime.on_event(events.append)
    run = asyncio.create_task(runtime.run({}))
    await until(lambda: events and events[-1]["type"] == "agent:text:delta")
    run_id = events[-1]["runId"]
    for message in ("Ann", "That is all"):
        runtime.dispatch({"type": "send", "message": message, "runId": run_id})
    outputs = (await run)["outputs"]
    assert outputs["interviewer"]["text"] == "Who are you? Noted: Ann. Noted: That is all. "


async def test_the_example_in_python_answers(folder: Path) -> None:
    transport, store = (load_object(f"{folder / 'chat.py'}:{name}") for name in ("transport", "store"))
    assert await answer(transport, "Rome") == EXPECTED
    store.close()


def test_the_flow_that_the_page_begins_with_is_one() -> None:
    (text, *_) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert [node.type for node in load_flow(text).nodes] == ["agent"]


def test_the_page_names_every_type_of_node_and_every_event_that_a_page_sees() -> None:
    unseen = {"flow:start", "flow:resumed", "node:complete", "node:skipped", "edge:fire", "loop:iterate", "state:patch"}
    unseen |= {"command:received", "agent:paused", "agent:aborted", "recording:linked", "input:received"}
    assert [kind for kind in default_registry().names() if f"| `{kind}` |" not in PAGE] == []
    assert {kind for kind in REQUIRED if f"`{kind}`" not in PAGE} == unseen


@pytest.mark.parametrize("option", ["reasoning", "step_markers", "flow_metadata", "node_outputs"])
def test_the_page_names_every_option(option: str) -> None:
    assert f"| `send_{option}` |" in PAGE
