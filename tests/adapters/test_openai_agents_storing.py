"""The OpenAI Agents SDK runs ahead of its reader, but its tools wait until their calls are stored."""

import asyncio
from typing import Any

import pytest
from agents import RunHooks

from tests.adapters.agents import Deeds
from tests.adapters.openai_agents_agent import make
from tests.adapters.turns import request, user
from usechat.adapters.openai_agents import OpenAIAgentsSource
from usechat.parts import Part, ToolCall
from usechat.sources import continues_after_crash, must_commit
from usechat.testing import ModelAnswer, ModelCall, ScriptedModel
from usechat.turn import TurnContext, TurnInput

CALLS = [ModelCall("weather", {"city": "Paris"}), ModelCall("clock", {"zone": "CET"})]


class NotedHooks(RunHooks[Any]):
    """Hooks of the application: what they were told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    async def on_llm_end(self, *_arguments: Any) -> None:
        self.told.append("model")

    async def on_tool_start(self, _context: Any, _agent: Any, tool: Any) -> None:
        self.told.append(f"{tool.name} starts")

    async def on_tool_end(self, _context: Any, _agent: Any, tool: Any, _result: Any) -> None:
        self.told.append(f"{tool.name} ended")


class SlowStore:
    """Stores calls and results slowly, and notes what the tools had done when a call was stored."""

    def __init__(self, deeds: Deeds) -> None:
        self._deeds = deeds
        self._calls = 0
        self.done: list[list[str]] = []

    def write(self, part: Part) -> bool:
        self._calls += isinstance(part, ToolCall)
        return must_commit(part)

    async def pause(self) -> None:
        await asyncio.sleep(0.2)
        if len(self.done) < self._calls:
            self.done.append(list(self._deeds.done))


@pytest.mark.parametrize("api", ["responses", "chat"])
async def test_no_tool_starts_before_the_calls_of_its_response_are_stored(api: Any) -> None:
    deeds, hooks = Deeds(), NotedHooks()
    store = SlowStore(deeds)
    with ScriptedModel([ModelAnswer(calls=CALLS), "Warm."]) as model:
        source = OpenAIAgentsSource(make(model, api, deeds), options={"hooks": hooks})
        context = TurnContext(TurnInput(request(user("How warm is it?"))))
        context.connect(store.write)
        context.pause = store.pause
        context.enter()
        await source.drive(context)
    assert store.done == [[], []]
    assert sorted(deeds.done) == ["clock CET", "weather Paris"]
    expected = ["clock ended", "clock starts", "model", "model", "weather ended", "weather starts"]
    assert sorted(hooks.told) == expected


@pytest.mark.parametrize(
    ("options", "continues"), [({}, True), ({"session": object()}, False), (lambda _turn: {}, None)]
)
def test_an_answer_goes_on_unless_a_session_holds_its_history(options: Any, continues: bool | None) -> None:
    with ScriptedModel([]) as model:
        source = OpenAIAgentsSource(make(model, "responses", Deeds()), options=options)
    assert continues_after_crash(source) is continues
