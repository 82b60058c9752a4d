"""Messages and requests to test chats with."""

from typing import Any, cast

from usechat.chats import Begun, ChatStore
from usechat.protocol.request import ChatRequest, Trigger
from usechat.protocol.ui_messages import UIMessage

SUBMIT: Trigger = "submit-message"
REGENERATE: Trigger = "regenerate-message"


def text(content: str, state: str | None = None) -> dict[str, Any]:
    return {"type": "text", "text": content} | ({} if state is None else {"state": state})


def user(message_id: str, content: str = "Hi", *parts: dict[str, Any]) -> UIMessage:
    return cast("UIMessage", {"id": message_id, "role": "user", "parts": [*parts, text(content)]})


def answer(message_id: str, *parts: dict[str, Any] | str) -> UIMessage:
    content = [text(part, "done") if isinstance(part, str) else part for part in parts]
    return cast("UIMessage", {"id": message_id, "role": "assistant", "parts": content})


def call(call_id: str, state: str = "input-available", **fields: Any) -> dict[str, Any]:
    return {"type": "tool-weather", "toolCallId": call_id, "state": state, "input": {"city": "Rome"}, **fields}


def asks(call_id: str, approval_id: str) -> dict[str, Any]:
    return call(call_id, "approval-requested", approval={"id": approval_id})


def answers(call_id: str, approval_id: str, approved: bool, **fields: Any) -> dict[str, Any]:
    return call(call_id, "approval-responded", approval={"id": approval_id, "approved": approved, **fields})


def ask(
    *messages: UIMessage,
    chat_id: str = "c1",
    trigger: Trigger = SUBMIT,
    message_id: str | None = None,
    **body: Any,
) -> ChatRequest:
    return ChatRequest(chat_id=chat_id, messages=list(messages), trigger=trigger, message_id=message_id, body=body)


_numbers = iter(range(1_000_000))


async def begin(store: ChatStore, request: ChatRequest, *, owner: str = "ada", **options: Any) -> Begun:
    """Begin a run that can begin."""
    beginning = await store.begin(request, owner=owner, run_id=f"run{next(_numbers)}", **options)
    assert isinstance(beginning, Begun), beginning
    return beginning


async def turn(store: ChatStore, request: ChatRequest, *parts: dict[str, Any] | str, outcome: Any = "finished") -> str:
    """Ask and answer; return the id of the answer. A continued answer goes on with the parts."""
    beginning = await begin(store, request)
    earlier = [] if beginning.continues is None else beginning.continues["parts"]
    message = answer(beginning.claim.message_id, *parts)
    message["parts"] = [*earlier, *message["parts"]]
    await store.finish(beginning.claim, message, outcome)
    return beginning.claim.message_id


def ids(messages: list[UIMessage]) -> list[str]:
    return [message["id"] for message in messages]


def texts(messages: list[UIMessage]) -> list[str]:
    return ["".join(str(part.get("text", "")) for part in message["parts"]) for message in messages]
