"""The nodes of the demo's flow that are no agents."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from usechat.demo.library import library
from usechat.demo.script import NOTHING_FOUND
from usechat.open_harness.nodes.context import NodeContext
from usechat.protocol.parts import SourceUrl
from usechat.turn import current_turn

__all__ = ["clerk", "desk", "reader", "sources"]

_DELETE: Final = re.compile(r"\b(delete|remove|erase|forget)\b.*\bnotes?\b", re.IGNORECASE)
_ITEM: Final = re.compile(r"^\s*[-*]?\s*(.+?)\s*$", re.MULTILINE)
_CITED: Final = re.compile(r"\[([^\]]+)\]\((docs/[^)\s]+)\)")


async def desk(fields: Mapping[str, Any], context: NodeContext) -> dict[str, str]:
    """Look at the message: most are questions, one kind asks for something that needs consent."""
    message = str(fields["message"])
    context.state.set("question", message)
    return {"route": "approval" if _DELETE.search(message) else "question"}


async def clerk(_fields: Mapping[str, Any], context: NodeContext) -> AsyncIterator[Any]:
    """Ask before anything is deleted; the flow pauses until the user has answered."""
    call_id = f"consent-{context.flow_input.get('chatId')}"
    if context.resume_message is None:
        prompt = "Delete the three notes in the demo's notebook?"
        yield {"type": "input:requested", "id": call_id, "kind": "approval", "prompt": prompt}
        context.pause()
        await asyncio.Event().wait()
    approved = (context.resume_message or "").lower().startswith("y")  # the answer to an approval is yes or no
    yield {"type": "input:received", "id": call_id, "approved": approved, "value": {"deleted": 3}}
    yield "The notes are gone. (There were none: this is a demo.)" if approved else "Then the notes stay."


async def reader(fields: Mapping[str, Any]) -> dict[str, str]:
    """Read the sections that the researcher named; of those that only come near, the names are enough."""
    said = str(fields["found"])
    found = [section for name in dict.fromkeys(_ITEM.findall(said)) if (section := library().get(name))]
    if said.startswith(NOTHING_FOUND):
        return {"sections": "", "nearest": ", ".join(f"[{section.name}]({section.link})" for section in found)}
    texts = [f"### [{section.name}]({section.link})\n\n{section.text}" for section in found]
    return {"sections": "\n\n".join(texts), "nearest": ""}


async def sources(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Show the sections that the answer cites."""
    answer = str(fields["answer"])
    cited = {} if answer.startswith(NOTHING_FOUND) else {link: name for name, link in _CITED.findall(answer)}
    for link, name in cited.items():
        current_turn().send(SourceUrl(f"source-{link}", link, name))
    return {"pages": list(cited)}
