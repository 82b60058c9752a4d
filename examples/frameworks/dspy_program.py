"""A DSPy program with a tool: `usechat serve examples/frameworks/dspy_program.py:agent`."""

import os

import dspy


def weather(city: str) -> dict[str, object]:
    """Tell the weather of a city."""
    return {"city": city, "celsius": 21}


class Conversation(dspy.Signature):  # type: ignore[misc]
    """Be brief."""

    question: str = dspy.InputField()
    history: dspy.History = dspy.InputField()
    answer: str = dspy.OutputField()


agent = dspy.ReAct(Conversation, tools=[weather])
agent.set_lm(dspy.LM("openai/gpt-5-mini", api_base=os.environ.get("OPENAI_BASE_URL"), cache=False))
