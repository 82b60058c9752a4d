"""Flows that ask the page: the turn ends, the flow waits, and the answer continues the message."""

import asyncio
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.open_harness.asking_nodes import node, registry
from tests.open_harness.flow_runs import flow
from usechat.open_harness import FlowRuntimes, OpenHarnessChatTransport, SqliteRunStore, chat
from usechat.pauses.questions import PAUSE_IS_GONE
from usechat.protocol.chunks import chunk_to_json
from usechat.protocol.request import ChatRequest
from usechat.testing import AgentClient

ONE = flow(node("a"))
TWO: dict[str, Any] = {**flow(node("a"), node("b")), "parallel": True}


def transport(described: Any = ONE, **options: Any) -> OpenHarnessChatTransport:
    return OpenHarnessChatTransport(FlowRuntimes(described, registry=registry(), **options))


@pytest.mark.parametrize(
    ("approve", "state", "text"),
    [(True, "output-available", "a is gone. "), (False, "output-denied", "a stays: None. ")],
)
@pytest.mark.parametrize("sdk", ["6", "7"])
def test_an_answer_continues_the_message(*, approve: bool, state: str, text: str, sdk: str) -> None:
    with AgentClient(transport(), approve=approve, headers={"x-ai-sdk": sdk}, sdk=sdk) as client:
        answer = client.ask("Delete a.")
        assert len(client.messages) == 2
    assert ([tool.state for tool in answer.tools], answer.text, answer.error) == ([state], text, None)
    answer.assert_legal(sdk=sdk)


def test_parallel_nodes_ask_in_one_message() -> None:
    call_ids: list[str] = []

    def approve(tool: Any) -> bool:
        call_ids.append(tool.call_id)
        return bool(tool.call_id == "call_b")

    with AgentClient(transport(TWO), approve=approve, headers={"x-ai-sdk": "7"}) as client:
        answer = client.ask("Delete both.")
    assert sorted(call_ids) == ["call_a", "call_b"]
    states = {tool.call_id: tool.state for tool in answer.tools}
    assert states == {"call_a": "output-denied", "call_b": "output-available"}
    assert sorted(part["text"] for part in answer.message.parts if part["type"] == "text") == [
        "a stays: None. ",
        "b is gone. ",
    ]
    answer.assert_legal(sdk="7")


def test_another_message_denies_what_the_flow_has_asked_for() -> None:
    with AgentClient(transport(), headers={"x-ai-sdk": "7"}) as client:
        client.ask("Delete a.")
        answer = client.ask("Never mind.")
    assert answer.text == (
        "a stays: The user has sent another message instead of an answer.. You wrote 'Never mind.'. "
    )
    assert (answer.tools, answer.error) == ([], None)
    answer.assert_legal(sdk="7")


# Two workers, as two transports over one file


def request(*parts: Any, **fields: Any) -> ChatRequest:
    """Return what a page posts: the question, and the answer so far."""
    messages = [{"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Delete a."}]}]
    if parts:
        messages.append({"id": "m1", "role": "assistant", "parts": list(parts)})
    return ChatRequest.parse({"id": "chat", "messages": messages, **fields})


def decided(*, approved: bool = True, path: str = "a") -> Any:
    call = {"type": "tool-delete", "toolCallId": f"call_{path}", "input": {"path": path}, "state": "approval-responded"}
    return {**call, "approval": {"id": f"approval-call_{path}", "approved": approved}}


async def chunks_of(worker: OpenHarnessChatTransport, request: ChatRequest) -> list[Any]:
    async with asyncio.timeout(60):
        return [chunk_to_json(chunk) async for chunk in await worker.send_messages(request)]


def kinds(chunks: list[Any]) -> list[str]:
    types = ("tool-input-available", "tool-approval-request", "tool-output-available", "text-delta", "error")
    return [chunk["type"] for chunk in chunks if chunk["type"] in types]


async def test_the_answer_may_reach_another_worker(tmp_path: Path) -> None:
    with ExitStack() as stack:
        stores = [SqliteRunStore(tmp_path / "runs.db") for _ in range(2)]
        for store in stores:
            stack.callback(store.close)
        workers = [transport(store=store) for store in stores]
        first = await chunks_of(workers[0], request())
        assert kinds(first) == ["tool-input-available", "tool-approval-request"]
        while stores[1].running_run("chat") is None:  # noqa: ASYNC110 (stores write in threads)
            await asyncio.sleep(0.01)
        second = await chunks_of(workers[1], request(decided()))
        assert kinds(second) == ["tool-output-available", "text-delta"]


async def test_an_answer_that_nobody_waits_for_is_refused() -> None:
    worker = transport()
    [error] = [chunk for chunk in await chunks_of(worker, request(decided())) if chunk["type"] == "error"]
    assert error["errorText"] == PAUSE_IS_GONE
    await chunks_of(worker, request())
    other = await chunks_of(worker, request(decided(path="b")))
    assert [chunk["errorText"] for chunk in other if chunk["type"] == "error"] == [PAUSE_IS_GONE]
    assert kinds(await chunks_of(worker, request(decided()))) == ["tool-output-available", "text-delta"]


async def test_a_flow_that_nobody_answers_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "WAIT_SECONDS", 0.05)
    worker = transport()
    await chunks_of(worker, request())
    while any(task.get_name() == "usechat flow" for task in asyncio.all_tasks()):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    late = await chunks_of(worker, request(decided()))
    assert [chunk["errorText"] for chunk in late if chunk["type"] == "error"] == [PAUSE_IS_GONE]
