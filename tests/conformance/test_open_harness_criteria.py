"""The success criteria of the Open Harness specification, on pages of the real clients 5, 6 and 7."""

import asyncio
import math
import re
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from pydantic_ai.models.test import TestModel

from tests.conformance.http_client import NEWEST, Browser, View, text_of
from tests.conformance.judge import Judge
from tests.conformance.open_harness import Chat, Stage, gate, good, last, parts_of, said_by, streamed, whole_tool
from tests.conformance.served import serving
from tests.open_harness.scripted import ScriptedRuntime, deltas, event, flow, node, recorded
from tests.server.process import serve_process
from usechat.open_harness import FlowRuntime, NodeRegistry, OpenHarnessChatTransport, default_registry
from usechat.open_harness.runtime_protocol import Event
from usechat.server import ChatApp

PAGE = Path(__file__).parents[2] / "docs" / "open-harness.md"
SECONDS = 0.1
DELTAS = 50
CONCURRENT = 100

TEN_LINES = """\
from usechat.open_harness import FlowRuntime, OpenHarnessChatTransport
from usechat.server import ChatApp

async def answer(input):
    yield f"You said {input['text']}."

node = {"id": "a", "type": "python", "input": {"function": f"{__name__}:answer", "text": "{{ flow.input.message }}"}}
flow = {"name": "chat-flow", "nodes": [node], "edges": []}
app = ChatApp(OpenHarnessChatTransport(lambda: FlowRuntime(flow)))
"""

STEPS = """\
def greet(input):
    yield f"You said {input['text']}."
"""
FLOW = """\
name: chat-flow
nodes:
  - id: greeter
    type: python
    input: { function: "steps:greet", text: "{{ flow.input.message }}" }
edges: []
"""

SPOKEN: dict[str, list[float]] = {}


def timed(kind: str) -> Any:
    """Return a script of deltas that notes when it tells each of them."""

    async def script(runtime: ScriptedRuntime) -> AsyncIterator[Event]:
        times = SPOKEN[runtime.input["chatId"]] = []
        yield event("flow:start", flowName="flow")
        for number in range(DELTAS):
            await gate(runtime, str(number))
            times.append(time.monotonic())
            yield event(f"agent:{kind}:delta", "a1", content=".")
        yield event("flow:complete", status="complete")

    return script


RAW = "Traceback: /etc/secret"
FAILURES = {
    "aborted": recorded(event("flow:start"), *deltas("a1", "Hi"), event("flow:aborted")),
    "node-fails": recorded(*flow(event("node:error", "a1", error=RAW), status="failed")),
    "times-out": recorded(
        *flow(
            event("agent:error", "a1", errorType="timeout", message=RAW),
            event("node:error", "a1", error=RAW),
            status="failed",
        )
    ),
    "no-network": recorded(*flow(event("agent:error", "a1", errorType="network_error", message=RAW), status="failed")),
    "no-key": recorded(*flow(event("agent:error", "a1", errorType="authentication", message=RAW), status="failed")),
}
STAGE = Stage(
    {
        **FAILURES,
        "text": timed("text"),
        "thinking": timed("thinking"),
        "tool-fails": streamed(*node("a1", whole_tool("a1", toolOutput=None, error=RAW))),
        "many-tools": streamed(
            *node(
                "a1",
                *[whole_tool("a1", f"tool{number % 7}", toolInput=number, toolOutput=-number) for number in range(200)],
            )
        ),
        "parts": streamed(
            *node("a1", *deltas("a1", "Hm", kind="thinking"), *deltas("a1", "Hi"), whole_tool("a1"), output=1),
            *node("b1", *deltas("b1", "Bye"), event("agent:complete", "b1", usage={"inputTokens": 1})),
        ),
        "tools": streamed(
            *node("a1", *[whole_tool("a1", toolInput=number, toolOutput=number + 1) for number in range(5)]),
            *node(
                "b1",
                *[event("agent:tool", "b1", toolName="read", toolInput=number) for number in range(5)],
                *[event("agent:tool", "b1", toolName="read", toolOutput=number + 1) for number in range(5)],
            ),
        ),
        "nodes": streamed(*(each for run in ("a1", "b1", "a2") for each in node(run, *deltas(run, run)))),
    }
)


class Barrier:
    """Lets the nodes of all turns of a release go on when all have begun."""

    def __init__(self) -> None:
        self._count = 0
        self._all = asyncio.Event()

    async def passed(self) -> None:
        self._count += 1
        if self._count == 2 * CONCURRENT:
            self._all.set()
        await self._all.wait()


BARRIERS: defaultdict[str, Barrier] = defaultdict(Barrier)


async def repeat(inputs: Mapping[str, Any]) -> AsyncIterator[str]:
    """Say one's own text over and over, while all the others do."""
    await BARRIERS[inputs["text"].split()[0]].passed()
    for _ in range(20):
        yield f"{inputs['text']} "
        await asyncio.sleep(0)


def registry() -> NodeRegistry:
    nodes = default_registry()
    nodes.add("repeat", repeat)
    return nodes


REPEAT = {
    "name": "repeat",
    "nodes": [
        {"id": "first", "type": "repeat", "input": {"text": "{{ flow.input.message }}"}},
        {"id": "second", "type": "repeat", "input": {"text": "{{ flow.input.message }}"}},
    ],
    "edges": [],
    "parallel": True,
}


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    nodes = registry()
    concurrent = ChatApp(OpenHarnessChatTransport(lambda: FlowRuntime(REPEAT, registry=nodes)))
    with STAGE.serving(concurrent=concurrent) as running:
        yield running


each_release = pytest.mark.parametrize("release", NEWEST)


def latencies(chat: Chat, kind: str) -> list[float]:
    """Return the seconds from the telling of each delta until the page has it."""
    chat.page.send(kind)
    part = "reasoning" if kind == "thinking" else "text"
    delays: list[float] = []

    def has_all(view: View) -> bool:
        return bool(view["messages"][1:]) and sum(len(each["text"]) for each in parts_of(view, part)) > len(delays)

    for number in range(DELTAS):
        chat.pass_gates(str(number))
        chat.page.until(has_all)
        delays.append(time.monotonic() - SPOKEN[chat.chat_id][number])
    chat.page.answer()
    return delays


def best_median(browser: Browser, stage: Stage, kind: str) -> float:
    """Of several measurements the best counts: what other processes take of the machine is not ours."""
    best = math.inf
    for _ in range(10):
        best = min(best, median(latencies(stage.open(browser, NEWEST[-1]), kind)))
        if best < SECONDS:
            break
    return best


@pytest.mark.parametrize("program", ["python", "page"])
def test_sc_001_ten_lines_are_enough(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    [example, *_] = re.findall(
        r"```yaml\n(name: .*?)```\n\n```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL
    )
    lines = TEN_LINES if program == "python" else "".join(example)
    assert len([line for line in lines.splitlines() if line]) <= 10
    if program == "python":
        (tmp_path / "ten_lines.py").write_text(TEN_LINES, encoding="utf-8")
        monkeypatch.syspath_prepend(tmp_path)
        app, answer = import_module("ten_lines").app, "You said hi."
    else:
        nodes = default_registry()
        nodes.add_model("anthropic:claude-sonnet-5", TestModel(custom_output_text="Hello."))
        runtime = partial(FlowRuntime, example[0], registry=nodes)
        app, answer = ChatApp(OpenHarnessChatTransport(runtime)), "Hello."
    with serving({"ten": app}) as served:
        for release in NEWEST:
            page = browser.open(release, served.url("ten"), chat_id=f"ten-{release}")
            page.send("hi")
            page.answer()
            assert text_of(page.look()) == answer


def test_sc_002_text_is_on_the_page_within_100_ms(browser: Browser, stage: Stage) -> None:
    assert best_median(browser, stage, "text") < SECONDS


@each_release
def test_sc_003_every_tool_call_shows_its_input_and_output(browser: Browser, stage: Stage, release: str) -> None:
    view = stage.answer(browser, release, "tools")
    tools = [(part["type"], part["state"], part["input"], part["output"]) for part in parts_of(view, "tool-")]
    assert good(view)
    assert tools == [
        (name, "output-available", number, number + 1) for name in ("tool-search", "tool-read") for number in range(5)
    ]


@each_release
def test_sc_004_nodes_have_clear_boundaries(browser: Browser, stage: Stage, release: str) -> None:
    view = stage.answer(browser, release, "nodes")
    assert (good(view), [part["type"] for part in last(view)["parts"]]) == (True, ["step-start", "text"] * 3)
    assert said_by(view) == [("a", "a1"), ("b", "b1"), ("a", "a2")]


@each_release
def test_sc_005_a_flow_with_200_tool_calls_is_shown_whole(browser: Browser, stage: Stage, release: str) -> None:
    view = stage.answer(browser, release, "many-tools")
    assert good(view)
    outputs = [(part["input"], part["output"]) for part in parts_of(view, "tool-")]
    assert outputs == [(number, -number) for number in range(200)]


@each_release
@pytest.mark.parametrize("script", FAILURES)
def test_sc_006_failures_are_told_in_sentences(browser: Browser, stage: Stage, release: str, script: str) -> None:
    view = stage.answer(browser, release, script)
    assert (view["status"], "secret" in str(view)) == ("error", False)
    assert view["error"] is not None
    assert re.fullmatch(r"The .+\.|The step “a” failed\. Reference: [0-9a-f]{8}", view["error"]["message"])


@each_release
def test_sc_006_a_failed_tool_is_told_in_a_sentence(browser: Browser, stage: Stage, release: str) -> None:
    view = stage.answer(browser, release, "tool-fails")
    [tool] = parts_of(view, "tool-")
    assert (good(view), "secret" in str(view)) == (True, False)
    assert re.fullmatch(r"search failed\. Reference: [0-9a-f]{8}", tool["errorText"])


@each_release
def test_sc_007_messages_hold_only_what_standard_components_draw(
    browser: Browser, stage: Stage, judge: Judge, release: str
) -> None:
    for app in ("plain", "data"):
        view = stage.answer(browser, release, "parts", app)
        assert good(view)
        [verdict] = judge.validate(release, [view["messages"]])
        assert verdict["error"] is None
        kinds = {part["type"] for part in last(view)["parts"] if not part["type"].startswith("data-")}
        assert kinds == {"step-start", "text", "reasoning", "tool-search"}


def test_sc_008_a_flow_file_and_one_command_are_a_chat(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(STEPS, encoding="utf-8")
    (tmp_path / "flow.yaml").write_text(FLOW, encoding="utf-8")
    with serve_process(tmp_path, "flow.yaml") as served:
        for release in NEWEST:
            page = browser.open(release, f"{served.url}/api/chat", chat_id=f"command-{release}")
            page.send("hi")
            page.answer()
            assert said_by(page.look()) == [("greeter", "You said hi.")]


def test_sc_009_thinking_is_on_the_page_within_100_ms(browser: Browser, stage: Stage) -> None:
    assert best_median(browser, stage, "thinking") < SECONDS


@each_release
def test_sc_010_100_concurrent_turns_never_mix(browser: Browser, stage: Stage, release: str) -> None:
    chats = [stage.open(browser, release, "concurrent") for _ in range(CONCURRENT)]
    for chat in chats:
        chat.page.send(f"{release} {chat.chat_id}")
    for chat in chats:
        message = chat.page.answer()
        by_node: dict[str, str] = {}
        for part in message["parts"]:
            if part["type"] == "text":
                node_id = part["providerMetadata"]["openHarness"]["nodeId"]
                by_node[node_id] = by_node.get(node_id, "") + part["text"]
        assert by_node == dict.fromkeys(("first", "second"), f"{release} {chat.chat_id} " * 20)
