"""A Genkit flow with a tool that needs approval.

    usechat serve --as genkit examples/genkit/notes.py:notes --interrupts approval --sdk 7

Write "delete shopping", and approve or deny it. The model is a few lines of Python, so the example needs no key.
To use a real model, pass the plugin of its provider and its name to `Genkit(...)`. The rest stays the same.
"""

import asyncio
from typing import Any

from genkit import (
    ActionRunContext,
    Genkit,
    Interrupt,
    Message,
    ModelRequest,
    ModelResponse,
    ModelResponseChunk,
    Part,
    Role,
    ToolRunContext,
)
from pydantic import BaseModel

ai = Genkit(model="offline")
NOTES = {"shopping": "Milk, bread", "ideas": "A boat"}


class Note(BaseModel):
    name: str


class Conversation(BaseModel):
    """The input that usechat passes to the flow: Genkit messages, and the answers to interrupted tools."""

    messages: list[dict[str, Any]]
    resume: dict[str, list[dict[str, Any]]] = {}


@ai.tool()
async def delete(note: Note, ctx: ToolRunContext) -> str:
    """Delete a note."""
    if not ctx.is_resumed():
        raise Interrupt({"reason": f"Delete the note {note.name}?"})
    if not (ctx.resumed_metadata or {}).get("approved"):  # a denial restarts the tool too
        return f"The note {note.name} was kept."
    return f"The note {note.name} was deleted." if NOTES.pop(note.name, None) else f"There is no note {note.name}."


@ai.flow(chunk_type=ModelResponseChunk)
async def notes(conversation: Conversation, ctx: ActionRunContext[ModelResponseChunk]) -> dict[str, Any]:
    """Answer questions about notes."""
    answer = ai.generate_stream(
        system="You keep notes.",
        messages=[Message.model_validate(message) for message in conversation.messages],
        tools=["delete"],
        resume_respond=answers_of(conversation, "respond"),
        resume_restart=answers_of(conversation, "restart"),
    )
    async for chunk in answer.stream:
        ctx.send_chunk(chunk)
    # The response tells usechat which tools were interrupted, the finish reason and the usage.
    response: dict[str, Any] = (await answer.response).model_dump(by_alias=True, exclude_none=True, exclude={"request"})
    return response


def answers_of(conversation: Conversation, kind: str) -> list[Part] | None:
    return [Part.model_validate(part) for part in conversation.resume.get(kind, ())] or None


async def offline(request: ModelRequest[Any], ctx: ActionRunContext[ModelResponseChunk]) -> ModelResponse:
    """Replace a model: call the tool for "delete NAME", otherwise list the notes."""
    last = request.messages[-1]
    if last.role == Role.TOOL:
        parts = [Part(text=str(part.tool_response.output)) for part in last.content if part.tool_response]
    elif last.text.startswith("delete "):
        parts = [Part.from_tool_request(name="delete", input={"name": last.text.removeprefix("delete ")})]
    else:
        parts = [Part(text=f"{word} ") for word in f"Your notes: {', '.join(NOTES)}.".split()]
    for part in parts:
        ctx.send_chunk(ModelResponseChunk(role=Role.MODEL, content=[part]))
        await asyncio.sleep(0.05)
    return ModelResponse(message=Message(role=Role.MODEL, content=parts))


ai.define_model("offline", offline)
