"""Generated flows with lists, retries, parallel nodes and a stop at any time, over runtime, transport and stream."""

import asyncio
import re
from collections import Counter
from functools import partial
from typing import Any

import jsonata  # type: ignore[import-untyped]  # noqa: F401 (it changes the recursion limit; in a test Hypothesis warns)
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.open_harness.flow_runs import constant, edge, flow
from usechat.open_harness import FlowRuntime, NodeContext, OpenHarnessChatTransport, default_registry
from usechat.parts import Abort, Part
from usechat.protocol.chunks import Chunk
from usechat.protocol.message import MessageBuilder
from usechat.protocol.request import ChatRequest
from usechat.protocol.stream import MessageStream
from usechat.turn import TurnContext, TurnInput

ATTEMPT = re.compile(r"<([^.<>]+)\.(\d+)>")
QUESTION = {"id": "c", "messages": [{"id": "u", "role": "user", "parts": [{"type": "text", "text": "hi"}]}]}


@st.composite
def nodes(draw: st.DrawFn, name: str) -> dict[str, Any]:
    given_input = {
        "name": name,
        "words": draw(st.integers(0, 3)),
        "fails": draw(st.integers(0, 2)),
        "uses_tool": draw(st.booleans()),
        "read": draw(st.sampled_from(["", "{{ $string($millis()) }}", "{{ $string(state.said) }}"])),
    }
    retry = {"maxAttempts": draw(st.integers(1, 3)), "backoffMs": 1}
    return {
        "id": name,
        "type": "say",
        "input": given_input,
        "policy": {"retry": retry, "continueOnError": draw(st.booleans())},
    }


@st.composite
def flows(draw: st.DrawFn) -> dict[str, Any]:
    speakers = [draw(nodes(f"n{number}")) for number in range(draw(st.integers(1, 3)))]
    lists, edges = [], []
    for before, node in zip([None, *speakers], speakers, strict=False):
        name = node["id"]
        kind = draw(st.sampled_from(["list", "chain", "alone"]))
        if kind == "list":
            lists.append(constant(f"list-{name}", list(range(draw(st.integers(0, 3))))))
            node["input"]["name"] = f"{name}-{{{{ item }}}}"
            edges.append(edge(f"list-{name}->{name}", forEach={"in": f"{{{{ `list-{name}`.value }}}}", "as": "item"}))
        elif kind == "chain" and before is not None:
            edges.append(edge(f"{before['id']}->{name}"))
    described = flow(*lists, *speakers, edges=tuple(edges))
    return {**described, "parallel": draw(st.booleans()), "state": {"initial": {"said": 0}}}


async def say(attempts: Counter[str], fields: dict[str, Any], context: NodeContext) -> dict[str, Any]:
    """Say which attempt of which node this is, use a tool, and fail as often as the input says."""
    name = fields["name"]
    attempts[name] += 1
    context.emit({"type": "agent:text:delta", "content": f"<{name}.{attempts[name]}>"})
    for _ in range(fields["words"]):
        await asyncio.sleep(0)
        context.emit({"type": "agent:text:delta", "content": "."})
    is_failing = attempts[name] <= fields["fails"]
    if fields["uses_tool"]:
        context.emit({"type": "agent:tool", "toolName": "look", "toolInput": {}})
        await asyncio.sleep(0)
        if not is_failing:
            context.emit({"type": "agent:tool", "toolName": "look", "toolOutput": {}})
    if is_failing:
        raise RuntimeError("not yet")
    context.state.set("said", context.state.get("said") + 1)
    return {"text": name}


async def answer(described: dict[str, Any], steps: int | None, *, sdk: str, send_step_markers: bool) -> list[Chunk]:
    """Return the chunks of a turn; it is stopped after so many steps of the event loop."""
    registry = default_registry()
    registry.add("say", partial(say, Counter()))
    transport = OpenHarnessChatTransport(
        lambda: FlowRuntime(described, registry=registry), send_flow_metadata=True, send_step_markers=send_step_markers
    )
    turn = TurnContext(TurnInput(ChatRequest.parse(QUESTION)))
    stream = MessageStream(message_id="m", sdk=sdk)
    chunks: list[Chunk] = []

    def hear(part: Part) -> None:
        chunks.extend(stream.send(part))

    turn.connect(hear)
    async with asyncio.timeout(60):
        driving = asyncio.create_task(transport.drive(turn))
        for _ in range(steps or 0):
            await asyncio.sleep(0)
        if steps is not None:
            driving.cancel()
        await asyncio.wait({driving})
    if driving.cancelled():
        hear(Abort())  # as a run does: it ends the calls that are open
    return [*chunks, *stream.close()]


@settings(deadline=None, max_examples=60)
@given(flows(), st.none() | st.integers(0, 60), st.sampled_from(["5", "6", "7"]), st.booleans())
def test_no_turn_leaves_anything_running_or_glues_two_attempts(
    described: dict[str, Any], steps: int | None, sdk: str, send_step_markers: bool
) -> None:
    chunks = asyncio.run(answer(described, steps, sdk=sdk, send_step_markers=send_step_markers))
    builder = MessageBuilder(sdk=sdk)
    for chunk in chunks:
        if type(chunk).__name__ != "ErrorChunk":  # the builder raises what the client would show
            builder.receive(chunk)
    message: Any = builder.message
    statuses = [
        part["data"]["status"] for part in message["parts"] if part["type"] in ("data-flow-status", "data-node-status")
    ]
    assert set(statuses) <= {"complete", "failed", "aborted", "skipped"}
    for part in message["parts"]:
        if part["type"] == "text":
            attempts = ATTEMPT.findall(part["text"])
            assert len(attempts) == len({name for name, _ in attempts}), (
                "an attempt follows another one in the same text"
            )
        assert part.get("state") not in ("streaming", "input-streaming", "input-available")
