"""The agent of the scripts as a program of DSPy."""

from typing import Any

import dspy

from tests.adapters.agents import INSTRUCTIONS, Api, Deeds
from usechat.adapters.dspy import DspySource
from usechat.testing import ScriptedModel


class Conversation(dspy.Signature):  # type: ignore[misc]
    question: str = dspy.InputField()
    history: dspy.History = dspy.InputField()
    answer: str = dspy.OutputField()


class Assistant(dspy.ReAct):  # type: ignore[misc]
    """Calls the scripted model, whichever model the process is configured with."""

    def __init__(self, model: ScriptedModel, deeds: Deeds) -> None:
        tools = [deeds.weather, deeds.clock, deeds.broken, deeds.slow, deeds.delete]
        super().__init__(Conversation.with_instructions(INSTRUCTIONS), tools=tools)
        self.set_lm(dspy.LM("openai/gpt-4o", api_base=model.openai_url, api_key="none", cache=False, num_retries=0))


def make(model: ScriptedModel, _api: Api, deeds: Deeds) -> Any:
    return DspySource(Assistant(model, deeds))
