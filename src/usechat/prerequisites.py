"""What a client says to a chunk that came without its prerequisite, word for word."""

from collections.abc import Mapping
from typing import Any, Final

from usechat import chunks
from usechat.chunks import Chunk, type_of
from usechat.dialects import Release, reads
from usechat.errors import UIMessageStreamError

__all__ = ["missing_prerequisite"]

_STARTS: Final[Mapping[type[Chunk], tuple[str, str]]] = {
    chunks.TextDelta: ("text part", "text-start"),
    chunks.TextEnd: ("text part", "text-start"),
    chunks.ReasoningDelta: ("reasoning part", "reasoning-start"),
    chunks.ReasoningEnd: ("reasoning part", "reasoning-start"),
    chunks.ToolInputDelta: ("tool call", "tool-input-start"),
}
"""What is missing, and the chunk that would have made it."""

# The older readers look at the missing part without asking, and show what JavaScript says to that.
_TYPE_ERRORS: Final[Mapping[type[Chunk], str]] = {
    chunks.TextDelta: "Cannot read properties of undefined (reading 'text')",
    chunks.TextEnd: "Cannot set properties of undefined (setting 'state')",
    chunks.ReasoningDelta: "Cannot read properties of undefined (reading 'text')",
    chunks.ReasoningEnd: "Cannot read properties of undefined (reading 'providerMetadata')",
    chunks.ToolInputDelta: "Cannot read properties of undefined (reading 'text')",
}
_REASONING_END_WITH_METADATA: Final = "Cannot set properties of undefined (setting 'providerMetadata')"


def missing_prerequisite(chunk: Chunk, chunk_id: str, release: Release) -> UIMessageStreamError:
    """Return the error for a chunk whose block, tool call or approval (``chunk_id``) the release does not find."""
    text = _block_text(chunk, chunk_id, release) if type(chunk) in _STARTS else _call_text(chunk, chunk_id, release)
    return UIMessageStreamError(text, chunk_type=type_of(chunk), chunk_id=chunk_id)


def _block_text(chunk: Any, chunk_id: str, release: Release) -> str:
    if not reads(release, "named-missing-parts"):
        with_metadata = isinstance(chunk, chunks.ReasoningEnd) and chunk.provider_metadata is not None
        return _REASONING_END_WITH_METADATA if with_metadata else _TYPE_ERRORS[type(chunk)]
    name, start = _STARTS[type(chunk)]
    return (
        f'Received {type_of(chunk)} for missing {name} with ID "{chunk_id}". '
        f'Ensure a "{start}" chunk is sent before any "{type_of(chunk)}" chunks.'
    )


def _call_text(chunk: Chunk, chunk_id: str, release: Release) -> str:
    if isinstance(chunk, chunks.ToolApprovalResponse):
        return f'No tool invocation found for approval ID "{chunk_id}".'
    if not reads(release, "outputs-find-either-kind"):
        return "tool-output-error must be preceded by a tool-input-available"
    if not reads(release, "named-missing-parts"):
        return f"no tool invocation found for tool call {chunk_id}"
    return f'No tool invocation found for tool call ID "{chunk_id}".'
