"""The OpenAI client in your own loop, with a tool: `usechat serve examples/frameworks/model_client.py:agent`."""

from collections.abc import AsyncIterator
from typing import Any

from openai import AsyncOpenAI

from usechat import Turn, model_messages, repair_messages
from usechat.adapters.openai import messages_of, parts, to_chat_completions
from usechat.parts import Part, ToolCall, ToolResult

client = AsyncOpenAI()
city = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
tool: Any = {"type": "function", "function": {"name": "weather", "description": "Weather.", "parameters": city}}


async def agent(turn: Turn) -> AsyncIterator[Part]:
    history = repair_messages(model_messages(turn.messages))
    while True:
        stream = await client.chat.completions.create(
            model="gpt-5-mini",
            messages=to_chat_completions(history),
            tools=[tool],
            stream=True,
            stream_options={"include_usage": True},
        )
        answer: list[Part] = []
        async for part in parts(stream):
            answer.append(part)
            yield part
        calls = [part for part in answer if isinstance(part, ToolCall)]
        if not calls:
            return
        for call in calls:
            answer.append(ToolResult(call.tool_call_id, {"city": call.input["city"], "celsius": 21}))
            yield answer[-1]
        history += messages_of(answer)
