"""A Genkit application whose model follows a script: text, thoughts, tools, an interrupt; all offline.

The last message names what the model does; it says the same to a flow, a prompt and an agent. The text ``OUTPUTS`` of a
script stands for the outputs of the tools before it.
"""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from genkit import (
    ActionRunContext,
    FinishReason,
    GenkitError,
    Interrupt,
    Message,
    ModelRequest,
    ModelResponse,
    ModelResponseChunk,
    ModelUsage,
    Part,
    PublicError,
    Role,
    ToolRunContext,
)
from genkit.exp import Genkit, InMemorySessionStore
from pydantic import BaseModel

from usechat import errors
from usechat.turn import current_turn

MODEL: Final = "scripted"
TOOLS: Final = ["weather", "broken", "delete", "wait", "nothing", "never", "twice", "careless"]
STARTED: list[str] = []
"""Tools that wait."""
CANCELLED: list[str] = []
"""What was cancelled: tools and flows."""
DELETED: list[tuple[str, bool]] = []
"""What the tool `delete` was restarted for, and whether a person had approved it."""
READ: list[list[str]] = []
"""What the model was given to read, each time."""

ai = Genkit(model=MODEL)


class City(BaseModel):
    city: str


class Question(BaseModel):
    message: str
    conversationHistory: list[dict[str, str]] = []  # noqa: N815 (the flow's own name of it)


class StrictQuestion(BaseModel, extra="forbid"):
    message: str


class Topic(BaseModel):
    topic: str
    depth: str = "short"


class Conversation(BaseModel):
    messages: list[dict[str, Any]]
    resume: dict[str, list[dict[str, Any]]] = {}


@ai.tool()
async def weather(place: City) -> dict[str, Any]:
    """How warm it is."""
    return {"city": place.city, "celsius": len(place.city)}


@ai.tool()
async def broken(_place: City) -> str:
    """A tool that fails."""
    raise ValueError("a secret of the server")


@ai.tool()
async def delete(place: City, ctx: ToolRunContext) -> str:
    """A tool that a person must allow."""
    if not ctx.is_resumed():
        raise Interrupt({"reason": "This cannot be undone."})
    approved = bool((ctx.resumed_metadata or {}).get("approved"))
    DELETED.append((place.city, approved))
    return f"{place.city} is gone" if approved else f"{place.city} is still there"


@ai.tool()
async def careless(place: City, ctx: ToolRunContext) -> str:
    """A tool that takes every restart as an approval."""
    if not ctx.is_resumed():
        raise Interrupt({"reason": "This cannot be undone."})
    return f"{place.city} is gone"


@ai.tool()
async def twice(place: City, ctx: ToolRunContext) -> str:
    """A tool that asks a second time."""
    if (ctx.resumed_metadata or {}).get("reason") != "Really.":
        raise Interrupt({"reason": "Really?" if ctx.is_resumed() else "Sure?"})
    return f"{place.city} is gone"


@ai.tool()
async def nothing(_place: City) -> None:
    """A tool that returns nothing."""


@ai.tool()
async def never(_place: City) -> bool:
    """A tool that returns false."""
    return False


@ai.tool()
async def wait(_place: City) -> str:
    """A tool that never ends."""
    STARTED.append("tool")
    try:
        await asyncio.sleep(3600)  # a future that nobody else knows would be collected, and the task with it
    except asyncio.CancelledError:
        CANCELLED.append("tool")
        raise
    return "never"


def request(name: str, city: str) -> Part:
    """A tool request without a ref."""
    return Part.from_tool_request(name=name, input={"city": city})


SCRIPTS: Final[dict[str, list[list[Part]]]] = {
    "hello": [[Part(text="Hel"), Part(text="lo")]],
    "repeat": [
        [Part(reasoning="Hm"), Part(text="Hel"), Part(text="lo"), request("weather", "Rome")],
        [Part(text="Warm.")],
    ],
    "think": [
        [Part(reasoning="I wonder"), Part(reasoning=".", metadata={"signature": "c2ln"}), Part(text="Yes.")],
    ],
    "weather": [
        [Part(text="Let me look."), request("weather", "Rome"), request("weather", "Paris")],
        [Part(text="It is warm.")],
    ],
    "broken": [[Part(text="Let me look."), request("broken", "Rome")]],
    "delete": [
        [Part(text="May I?"), request("delete", "Rome"), request("weather", "Oslo")],
        [Part(text="Thanks.")],
    ],
    "careless": [[Part(text="May I?"), request("careless", "Rome")], [Part(text="Thanks.")]],
    "twins": [[Part(text="May I?"), request("delete", "Rome"), request("delete", "Paris")], [Part(text="OUTPUTS")]],
    "beside": [
        [Part(text="May I?"), request("delete", "Rome"), request("nothing", "Oslo"), request("never", "Oslo")],
        [Part(text="Thanks.")],
    ],
    "twice": [[Part(text="May I?"), request("twice", "Rome"), request("weather", "Oslo")], [Part(text="Thanks.")]],
    "wait": [[Part(text="Let me look."), request("wait", "Rome")]],
    "picture": [[Part.from_media("data:image/png;base64,AAAA"), Part(data={"answer": 42})]],
}


async def scripted(request: ModelRequest[Any], ctx: ActionRunContext[ModelResponseChunk]) -> ModelResponse:
    READ.append([message.text for message in request.messages])
    messages = [message for message in request.messages if message.role in (Role.USER, Role.TOOL)]
    users = [index for index, message in enumerate(messages) if message.role == Role.USER]
    if messages[users[-1]].text == "refuse":
        raise PublicError("RESOURCE_EXHAUSTED", "The quota of today is used up.")
    rounds = SCRIPTS[messages[users[-1]].text]
    outputs = [part.tool_response.output for part in messages[-1].content if part.tool_response]
    answer = Part(text=json.dumps(sorted(outputs, key=str), separators=(",", ":")))
    content = [answer if part.text == "OUTPUTS" else part for part in rounds[len(messages) - 1 - users[-1]]]
    repeats = messages[users[-1]].text == "repeat"
    for index, part in enumerate(content):
        parts = content[: index + 1] if repeats else [part]
        ctx.send_chunk(ModelResponseChunk(content=parts, role=Role.MODEL, aggregated=repeats))
        await asyncio.sleep(0)
    return ModelResponse(
        message=Message(role=Role.MODEL, content=content),
        finish_reason=FinishReason.STOP,
        usage=ModelUsage(input_tokens=3, output_tokens=5, total_tokens=8),
    )


ai.define_model(MODEL, scripted)


async def generate(send_chunk: Callable[[Any], None], **options: Any) -> dict[str, Any]:
    answer = ai.generate_stream(tools=TOOLS, **options)
    async for chunk in answer.stream:
        send_chunk(chunk)
    return (await answer.response).model_dump(by_alias=True, exclude_none=True, exclude={"request"})


@ai.flow(name="chatFlow", chunk_type=ModelResponseChunk)
async def chat_flow(question: Question, ctx: ActionRunContext[ModelResponseChunk]) -> dict[str, Any]:
    """The flow of the specification; it returns the whole response."""
    return await generate(ctx.send_chunk, prompt=question.message)


@ai.flow(chunk_type=ModelResponseChunk)
async def conversation(chat: Conversation, ctx: ActionRunContext[ModelResponseChunk]) -> dict[str, Any]:
    """A flow that takes Genkit's messages, and answers to its interrupts."""
    resume = {
        f"resume_{kind}": [Part.model_validate(part) for part in answers] for kind, answers in chat.resume.items()
    }
    messages = [Message.model_validate(message) for message in chat.messages]
    return await generate(ctx.send_chunk, messages=messages, **resume)


@ai.flow()
async def who(_text: str, ctx: ActionRunContext[str]) -> dict[str, Any]:
    """A flow that tells who asks, and in which chat."""
    return {"context": ctx.context, "chat": current_turn().chat_id}


@ai.flow()
async def echo(text: str) -> str:
    """A flow that streams nothing."""
    return f"You said: {text}"


@ai.flow()
async def strict(question: StrictQuestion) -> str:
    """A flow that refuses keys that it does not know."""
    return f"You said: {question.message}"


@ai.flow()
async def about(topic: Topic) -> str:
    """A flow that takes an object with one text, and another with a default."""
    return f"{topic.topic}, {topic.depth}"


@ai.flow(chunk_type=str)
async def words(text: str, ctx: ActionRunContext[str]) -> str:
    """A flow that streams plain strings."""
    for word in ("You ", "said: ", text):
        ctx.send_chunk(word)
        await asyncio.sleep(0)
    return f"You said: {text}"


@ai.flow(chunk_type=dict)
async def statuses(text: str, ctx: ActionRunContext[dict[str, Any]]) -> dict[str, str]:
    """A flow with custom chunks."""
    ctx.send_chunk({"status": "looking"})
    return {"text": f"You said: {text}"}


@ai.flow(chunk_type=str)
async def endless(_text: str, ctx: ActionRunContext[str]) -> str:
    """A flow that waits for its cancellation."""
    ctx.send_chunk("Wait")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        CANCELLED.append(f"flow {ctx.abort_signal.is_set()}")
        raise
    return "never"


@ai.flow()
async def silent(_text: str, ctx: ActionRunContext[str]) -> str:
    """A flow that says nothing and waits for its cancellation."""
    STARTED.append("flow")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        CANCELLED.append(f"flow {ctx.abort_signal.is_set()}")
        raise
    return "never"


@ai.flow()
async def reluctant(_text: str) -> str:
    """A flow that takes no notice of its first cancellation."""
    for attempt in ("first", "second"):
        STARTED.append(attempt)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            CANCELLED.append(attempt)
    return "never"


@ai.flow(chunk_type=str)
async def steady(_text: str, ctx: ActionRunContext[str]) -> str:
    """A flow that says as much, with pauses."""
    for number in range(20_000):
        ctx.send_chunk("x")
        if number % 50 == 0:
            await asyncio.sleep(0)
    return "never"


@ai.flow(chunk_type=str)
async def stubborn(_text: str, ctx: ActionRunContext[str]) -> str:
    """A flow that says too much and does not care."""
    for number in range(20_000):
        with suppress(Exception):
            ctx.send_chunk(str(number))
    return "never"


@ai.flow(chunk_type=str)
async def flood(_text: str, ctx: ActionRunContext[str]) -> str:
    """A flow that says too much without a pause."""
    for number in range(20_000):
        ctx.send_chunk(str(number))
    return "never"


@ai.flow(chunk_type=str)
async def refusing(text: str, ctx: ActionRunContext[str]) -> str:
    """A flow that fails: in public, with a status, or with a secret."""
    ctx.send_chunk("Well, ")
    if text == "public":
        raise PublicError("INVALID_ARGUMENT", "Name a city.")
    if text == "public here":
        raise errors.PublicError("Name a town.")
    if text == "limited":
        raise GenkitError(status="RESOURCE_EXHAUSTED", message="a secret of the server")
    raise ValueError("a secret of the server")


class Numbers(BaseModel):
    first: int
    second: int


@ai.flow()
async def add(numbers: Numbers) -> int:
    """A flow that is no chat."""
    return numbers.first + numbers.second


agent = ai.define_agent(name="helper", system="Be kind.", tools=TOOLS, store=InMemorySessionStore())
stateless = ai.define_agent(name="stateless", system="Be kind.", tools=TOOLS)
prompt = ai.define_prompt(name="kind", system="Be kind.", tools=TOOLS)
template = ai.define_prompt(name="template", prompt="{{message}}")
