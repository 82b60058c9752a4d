"""Models that follow a script; they really run through pydantic-ai."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, TypeAlias

from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.profiles import ModelProfile

from usechat.open_harness.nodes.builtin import default_registry
from usechat.open_harness.nodes.registry import NodeRegistry

Step: TypeAlias = str | dict[int, DeltaToolCall] | dict[int, DeltaThinkingPart] | Exception | asyncio.Event


def thinking(text: str) -> dict[int, DeltaThinkingPart]:
    return {0: DeltaThinkingPart(content=text)}


def call(name: str, arguments: str = "{}", *, index: int = 1) -> dict[int, DeltaToolCall]:
    return {index: DeltaToolCall(name, arguments)}


def spoken(messages: Sequence[ModelMessage]) -> list[tuple[str, Any]]:
    """Return what was said so far: the kind of each part, and its content."""
    parts = [part for message in messages for part in message.parts]
    return [(part.part_kind, getattr(part, "content", getattr(part, "args", None))) for part in parts]


class Script:
    """Answers each request with the next list of steps; `requests` holds what the model was told each time.

    A step is a piece of text or of thinking, a call of a tool, an exception to raise, or an event to wait for.
    """

    def __init__(self, *answers: Sequence[Step]) -> None:
        self._answers = list(answers)
        self.requests: list[list[tuple[str, Any]]] = []
        self.instructions: list[str | None] = []
        self.thinking: list[Any] = []

    @property
    def model(self) -> FunctionModel:
        profile = ModelProfile(supports_thinking=True)
        return FunctionModel(stream_function=self._answer, model_name="scripted", profile=profile)

    @property
    def registry(self) -> NodeRegistry:
        return default_registry(default_model=self.model)

    async def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        self.requests.append(spoken(messages))
        self.instructions.append(info.instructions)
        self.thinking.append(info.model_request_parameters.thinking)
        steps = self._answers.pop(0) if self._answers else ["nothing left to say"]
        for step in steps:
            if isinstance(step, Exception):
                raise step
            if isinstance(step, asyncio.Event):
                await step.wait()
            else:
                yield step
            await asyncio.sleep(0)


def answering(answer: Callable[[str], str]) -> FunctionModel:
    """Return a model that answers the last thing it was told, word by word."""

    async def stream(messages: list[ModelMessage], _info: AgentInfo) -> AsyncIterator[str]:
        text = answer(str(spoken(messages)[-1][1]))
        for piece in re.findall(r" *[^ ]+", text):
            yield piece
            await asyncio.sleep(0)

    return FunctionModel(stream_function=stream, model_name="answering")
