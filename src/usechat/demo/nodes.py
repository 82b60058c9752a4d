"""The nodes of the demo's flow that are no agents."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from usechat import current_turn
from usechat.open_harness import NodeContext
from usechat.parts import SourceUrl

__all__ = ["clerk", "desk", "sources"]

_DELETE: Final = re.compile(r"\b(delete|remove|erase|forget)\b.*\bnotes?\b", re.IGNORECASE)
_CITED: Final = re.compile(r"\[([^\]]+)\]\((docs/[^)\s]+)\)")


async def desk(fields: Mapping[str, Any]) -> dict[str, str]:
    """Look at the message: most are questions, one kind asks for something that needs consent."""
    return {"route": "approval" if _DELETE.search(str(fields["message"])) else "question"}


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


async def sources(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Show the sections that the answer cites."""
    names = {link: name for name, link in _CITED.findall(str(fields["text"]))}
    for link, name in names.items():
        current_turn().send(SourceUrl(f"source-{link}", link, name))
    return {"pages": list(names)}
