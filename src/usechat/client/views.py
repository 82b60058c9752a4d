"""Read a ``UIMessage`` with Python's names: its text, tools, files, sources and data."""

from collections.abc import Mapping
from typing import Any, Final, cast

from usechat.errors import RequestRefused
from usechat.protocol.tool_calls import APPROVAL_TOOL
from usechat.protocol.ui_messages import FileUIPart, UIMessage, text_of, tool_name, tool_parts_of

__all__ = ["MessageView", "ToolView", "printable", "printable_failure", "with_stable_ids"]

_LONGEST_BODY: Final = 500
"""Characters of a refusal's body that a terminal shows: an error page of a web server is longer."""

_CONTROL: Final = {
    number: "\N{REPLACEMENT CHARACTER}" for number in (*range(32), *range(127, 160)) if chr(number) not in "\n\t"
}


def printable(text: str) -> str:
    """Return a text without control characters, except for line breaks and tabs: in a terminal they are commands.

    >>> printable("Hi\\x1b[2J") == "Hi\\N{REPLACEMENT CHARACTER}[2J"
    True
    """
    return text.replace("\r\n", "\n").translate(_CONTROL)


def printable_failure(error: Exception) -> str:
    """Return what a terminal shows of a failed request; of a refusal also the address and the status.

    >>> from usechat.errors import RequestRefused
    >>> printable_failure(RequestRefused(status=404, body="Not Found", url="http://localhost:8000/chat"))
    'http://localhost:8000/chat answered with status 404: Not Found'
    """
    if not isinstance(error, RequestRefused):
        return printable(str(error))
    body = error.body.strip()
    text = body if len(body) <= _LONGEST_BODY else f"{body[:_LONGEST_BODY]}… ({len(body)} characters)"
    return printable(f"{error.url} answered with status {error.status}{': ' if text else ''}{text}")


class ToolView:
    """One tool call of a message.

    >>> call = {"type": "tool-weather", "toolCallId": "c1", "state": "output-available", "input": {}, "output": 21}
    >>> tool = ToolView(call)
    >>> tool.name, tool.output
    ('weather', 21)
    """

    __slots__ = ("part",)

    def __init__(self, part: Mapping[str, Any]) -> None:
        self.part = part
        """The part as the message holds it."""

    def __repr__(self) -> str:
        return f"<{self.name} {self.call_id} {self.state}>"

    @property
    def name(self) -> str:
        """The tool's name."""
        return tool_name(self.part)

    @property
    def call_id(self) -> str:
        """The id of the call, which an answer names."""
        return str(self.part["toolCallId"])

    @property
    def state(self) -> str:
        """How far the call is, such as ``output-available``."""
        return str(self.part.get("state", ""))

    @property
    def input(self) -> Any:
        """What the tool was called with; ``None`` as long as nothing of it has arrived."""
        return self.part.get("input")

    @property
    def output(self) -> Any:
        """What the tool returned; ``None`` as long as it has not."""
        return self.part.get("output")

    @property
    def error_text(self) -> str | None:
        """Why the call failed, if it did."""
        return self.part.get("errorText")

    @property
    def is_preliminary(self) -> bool:
        """Whether the output may still change."""
        return self.part.get("preliminary") is True

    @property
    def approval_id(self) -> str | None:
        """The id of the approval request, if the call needs one."""
        approval = self.part.get("approval")
        return None if approval is None else str(approval["id"])

    @property
    def approved(self) -> bool | None:
        """What a person answered to the approval request; ``None`` until then."""
        return (self.part.get("approval") or {}).get("approved")

    @property
    def asks_for_approval(self) -> bool:
        """Whether the call is itself a question: how a usechat server asks clients that may not know approvals.

        Its output is ``{"approved": true}``, and its input names the call that waits for it.
        """
        return self.name == APPROVAL_TOOL and isinstance(self.input, Mapping) and "approvalId" in self.input

    @property
    def waits_for_approval(self) -> bool:
        """Whether the call waits for ``add_approval_response``."""
        return self.state == "approval-requested"

    @property
    def waits_for_output(self) -> bool:
        """Whether the call has its input and no outcome: after the end of a turn it waits for ``add_tool_output``."""
        return self.state == "input-available" and not self.part.get("providerExecuted")


class MessageView:
    """One message, as it was when the view was made.

    >>> view = MessageView({"id": "m1", "role": "assistant", "parts": [{"type": "text", "text": "Hi"}]})
    >>> view.text
    'Hi'
    """

    __slots__ = ("message",)

    def __init__(self, message: UIMessage) -> None:
        self.message = message
        """The message in the wire's own shape, as ``useChat`` has it."""

    def __repr__(self) -> str:
        return f"<{self.role} message {self.id}: {self.text[:60]!r}>"

    @property
    def id(self) -> str:
        """The message's id."""
        return self.message["id"]

    @property
    def role(self) -> str:
        """``user``, ``assistant`` or ``system``."""
        return self.message["role"]

    @property
    def metadata(self) -> Any:
        """What the application attached to the message; ``None`` if nothing."""
        return self.message.get("metadata")

    @property
    def parts(self) -> list[Mapping[str, Any]]:
        """The parts in the wire's own shape."""
        return cast("list[Mapping[str, Any]]", self.message["parts"])

    @property
    def text(self) -> str:
        """The text parts, joined."""
        return text_of(self.message)

    @property
    def reasoning(self) -> str:
        """The reasoning parts, joined."""
        return "".join(part["text"] for part in self._of("reasoning"))

    @property
    def tools(self) -> list[ToolView]:
        """The tool calls in order."""
        return [ToolView(part) for part in tool_parts_of(self.message)]

    @property
    def questions(self) -> list[ToolView]:
        """The calls that wait for a person or for the client: approvals, and tools that the client runs.

        A call whose approval is asked through the tool ``approval`` is not one of them; that of the tool is.
        """
        waiting = [tool for tool in self.tools if tool.waits_for_approval or tool.waits_for_output]
        call_ids = [tool.input.get("toolCallId") for tool in waiting if tool.asks_for_approval]
        return [tool for tool in waiting if tool.call_id not in call_ids]

    @property
    def files(self) -> list[FileUIPart]:
        """The file parts."""
        return cast("list[FileUIPart]", self._of("file"))

    @property
    def sources(self) -> list[Mapping[str, Any]]:
        """The web pages and documents that the answer names."""
        return self._of("source-url", "source-document")

    @property
    def data(self) -> dict[str, list[Any]]:
        """The application's data parts by name, without ``data-``; transient ones are not kept in a message."""
        values: dict[str, list[Any]] = {}
        for part in self.parts:
            if part["type"].startswith("data-"):
                values.setdefault(part["type"].removeprefix("data-"), []).append(part.get("data"))
        return values

    def _of(self, *kinds: str) -> list[Mapping[str, Any]]:
        return [part for part in self.parts if part["type"] in kinds]


_ID_KEYS: Final = {
    "id": "message",
    "toolCallId": "call",
    "approvalId": "approval",
    "sourceId": "source",
    "itemId": "item",  # in the provider metadata of OpenAI's Responses API
}


def with_stable_ids(message: UIMessage) -> Any:
    """Return a message as JSON values that are the same in every run: its ids are numbered, signatures are left out.

    >>> with_stable_ids({"id": "msg_4711", "role": "assistant", "parts": []})
    {'id': 'message-1', 'role': 'assistant', 'parts': []}
    """
    return _with_stable_ids(message, {}, "message")


def _with_stable_ids(value: Any, names: dict[str, str], kind: str) -> Any:
    if isinstance(value, list):
        return [_with_stable_ids(item, names, "part") for item in value]
    if not isinstance(value, dict):
        return value
    result = {}
    for key, item in value.items():
        if key in ("input", "output", "data", "metadata"):
            result[key] = item  # the application's own
        elif key in _ID_KEYS and isinstance(item, str):
            label = kind if key == "id" else _ID_KEYS[key]
            number = sum(name.startswith(f"{label}-") for name in names.values()) + 1
            result[key] = names.setdefault(f"{label} {item}", f"{label}-{number}")
        elif key != "signature":
            result[key] = _with_stable_ids(item, names, "approval" if key == "approval" else kind)
    return result
