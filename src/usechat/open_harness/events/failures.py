"""The sentence that the user reads about a failure in a flow, and the notice for the log."""

import re
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple

__all__ = ["PUBLIC", "Notice", "failed_step", "failed_tool"]

PUBLIC: Final = "public"


class Notice(NamedTuple):
    """An entry for the log: a failure with its raw text, which is never shown, or an event that could not be read.

    ``event`` is the type of the event; ``unknown`` and ``nameless-tool`` are counted under it.
    """

    kind: Literal["failure", "unknown", "nameless-tool"]
    text: str
    event: str
    reference: str = ""


_5XX: Final = r"5(0|2)\d"
_CAUSES: Final = (
    ("timeout", re.compile(r"time[-_ ]?out|timed[-_ ]?out|deadline", re.IGNORECASE)),
    ("rate limit", re.compile(r"rate[-_ ]?limit|too[-_ ]?many[-_ ]?requests|overloaded|quota|\b429\b", re.IGNORECASE)),
    ("auth", re.compile(r"auth(?!or)|api[-_ ]?key|credential|forbidden|\b40[13]\b", re.IGNORECASE)),
    ("network", re.compile(r"network|connection|unreachable|\bdns\b|ECONN|ENOTFOUND|EAI_AGAIN", re.IGNORECASE)),
    # Failures of the service itself, as HTTP libraries write them: "API Error: 503 …", "502 Bad Gateway".
    ("network", re.compile(rf"(error|status|code|http)\W{{0,3}}{_5XX}\b|server[-_ ]error|bad gateway", re.IGNORECASE)),
    # Those of the TypeScript clients of OpenAI and Anthropic begin with it: "500 status code (no body)".
    ("network", re.compile(rf"^\W*(http\S* )?{_5XX}\W*($|<|status|upstream|internal|gateway|origin)", re.IGNORECASE)),
    ("network", re.compile(r"(service|temporarily)[-_ ]unavailable", re.IGNORECASE)),
)
_TYPES_OF_ANY_CAUSE: Final = ("", "exception", "error_during_execution", "unknown", "error", "api_error", "APIError")
"""Error types of Open Harness's agents and of model clients that say nothing about the cause."""
_SENTENCES: Final = {
    "timeout": "{who} took too long and was stopped. Please try again.",
    "rate limit": "{who} was refused because of too many requests. Please try again in a moment.",
    "auth": "{who} was refused by a service that it needs: its credentials are missing or not valid.",
    "network": "{who} could not reach a service that it needs. Please try again.",
}
_SECONDS: Final = re.compile(r"timed out after (\d+(?:\.\d+)?) ?s\b")


def _cause(text: str) -> str | None:
    return next((cause for cause, words in _CAUSES if words.search(text)), None)


def failed_step(node_id: str, error_type: str, text: str, reference: str) -> str:
    """Return the sentence about a node that failed. The error type decides; if it names no cause, the text does.

    A text of the type ``public`` is meant for the user and shown as it is.
    """
    if error_type == PUBLIC:
        return text
    who = f"The step “{node_id}”"
    sentence = _SENTENCES.get(_cause(text if error_type in _TYPES_OF_ANY_CAUSE else error_type) or "")
    return sentence.format(who=who) if sentence else f"{who} failed. Reference: {reference}"


def failed_tool(tool_name: str, error_type: Any, text: str, new_reference: Callable[[], str]) -> tuple[str, str]:
    """Return the sentence about a tool that failed, and the reference under which its raw text is logged.

    A text of the type ``public`` is shown as it is.
    """
    reference = new_reference()
    if error_type == PUBLIC:
        return text, reference
    if match := _SECONDS.search(text):
        return f"{tool_name} timed out after {match[1]} s", reference
    sentence = _SENTENCES.get(_cause(text) or "")
    return sentence.format(who=tool_name) if sentence else f"{tool_name} failed. Reference: {reference}", reference
