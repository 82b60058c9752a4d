"""`usechat.client.Chat` beside the real chat class of the npm packages: generated conversations, the same server."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.conformance.conversations import RealChats, app, comparable, conversation, our_chats, placed
from tests.conformance.http_client import NEWEST
from tests.conformance.judge import Json, Judge
from tests.conformance.served import Served, serving
from usechat.client import is_complete_with_approval_responses, is_complete_with_tool_calls

CONVERSATIONS = 500


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving({release: app(release) for release in NEWEST}) as running:
        yield running


@pytest.fixture(scope="module")
def real_chats() -> Iterator[RealChats]:
    with RealChats() as running:
        yield running


@pytest.mark.parametrize("release", NEWEST)
def test_our_chat_does_what_the_real_class_does(served: Served, real_chats: RealChats, release: str) -> None:
    base = f"http://127.0.0.1:{served.port}/{release}"
    scripts = {
        seed: conversation(seed, release[0]) for seed in range(NEWEST.index(release), CONVERSATIONS, len(NEWEST))
    }
    real = real_chats.talk(release, [placed(one, base, f"real-{seed}") for seed, one in scripts.items()])
    ours = asyncio.run(our_chats(release, [placed(one, base, f"ours-{seed}") for seed, one in scripts.items()]))
    for seed, their_result, our_result in zip(scripts, real, ours, strict=True):
        expected, actual = comparable(their_result, f"real-{seed}"), comparable(our_result, f"ours-{seed}")
        assert actual == expected, f"conversation {seed}: {json.dumps(scripts[seed])}"
    assert_reach(release, real)


def assert_reach(release: str, results: list[Json]) -> None:
    """The conversations come to what they are meant to show."""
    states = [state for result in results for state in result["states"]]
    counts = Counter(
        part.get("state", part["type"])
        for state in states
        for message in state["messages"]
        for part in message["parts"]
    )
    for part in ("output-available", "output-error", "input-available", "streaming", "data-progress", "file"):
        assert counts[part] > 20, part
    if release[0] != "5":
        for part in ("approval-requested", "approval-responded", "output-denied"):
            assert counts[part] > 5, part
    assert sum(state["status"] == "error" for state in states) > 50
    assert sum(state["thrown"] is not None for state in states) > 10
    requests = Counter((request["method"], request["status"]) for result in results for request in result["requests"])
    for request in (("POST", 200), ("POST", 409), ("POST", 413), ("GET", 200), ("GET", 204)):
        assert requests[request] > 5, request


def generated_history(choice: random.Random) -> list[Json]:
    """Return a history whose last message is in some state of waiting."""
    states = ["input-streaming", "input-available", "approval-requested", "approval-responded"]
    states += ["output-available", "output-error", "output-denied"]
    parts: list[Json] = []
    for number in range(choice.randint(0, 5)):
        kind = choice.choice(["tool-a", "dynamic-tool", "text", "step-start", "data-x"])
        part: dict[str, Json] = {"type": kind}
        if kind in ("tool-a", "dynamic-tool"):
            part |= {"toolCallId": f"c{number}", "toolName": "a", "state": choice.choice(states)}
            part |= choice.choice([{}, {}, {"providerExecuted": True}, {"preliminary": True}])
        elif kind == "text":
            part |= {"text": "a"} | choice.choice([{}, {"state": "done"}, {"state": "streaming"}])
        parts.append(part)
    role = choice.choice(["assistant", "assistant", "assistant", "user"])
    return [{"id": "m1", "role": role, "parts": parts}] if choice.random() < 0.95 else []


@pytest.mark.parametrize("release", NEWEST)
def test_histories_are_complete_when_the_real_predicates_say_so(judge: Judge, release: str) -> None:
    histories = [generated_history(random.Random(seed)) for seed in range(2_000)]
    if release[0] == "5":  # which takes a preliminary output for the last word; ours does as 6 and 7 do
        histories = [history for history in histories if "preliminary" not in json.dumps(history)]
    results = judge.complete(release, histories)
    assert [is_complete_with_tool_calls(history) for history in histories] == [one["toolCalls"] for one in results]
    assert sum(one["toolCalls"] for one in results) > 20
    if release[0] != "5":
        ours = [is_complete_with_approval_responses(history) for history in histories]
        assert ours == [one["approvals"] for one in results]
        assert sum(ours) > 20
