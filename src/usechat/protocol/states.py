"""What may follow what: the life of a text block and of a tool call, as tables.

The sender (:mod:`~usechat.protocol.stream`) asks them what it must send first; the reader
(:mod:`~usechat.protocol.message`) asks them what state a part is in and which chunk came without its prerequisite.
"""

import enum
from collections.abc import Mapping
from typing import Any, Final

from usechat.errors import UIMessageStreamError
from usechat.protocol import chunks
from usechat.protocol.chunks import Chunk, type_of
from usechat.protocol.releases import Release, reads

__all__ = [
    "BLOCK_TRANSITIONS",
    "SETTLED",
    "TOOL_TRANSITIONS",
    "BlockState",
    "ToolState",
    "missing_prerequisite",
    "tool_state_after",
]


class BlockState(enum.Enum):
    """A text or reasoning block, by its id."""

    CLOSED = "closed"
    OPEN = "open"


class ToolState(enum.StrEnum):
    """A tool call, by its id; the values are the ``state`` of the part on the page."""

    ABSENT = "absent"
    INPUT_STREAMING = "input-streaming"
    INPUT_AVAILABLE = "input-available"
    APPROVAL_REQUESTED = "approval-requested"
    APPROVAL_RESPONDED = "approval-responded"
    OUTPUT_AVAILABLE = "output-available"
    OUTPUT_ERROR = "output-error"
    OUTPUT_DENIED = "output-denied"


BLOCK_TRANSITIONS: Final[Mapping[BlockState, Mapping[type[chunks.Chunk], BlockState]]] = {
    BlockState.CLOSED: {
        chunks.TextStartChunk: BlockState.OPEN,
        chunks.ReasoningStartChunk: BlockState.OPEN,
    },
    BlockState.OPEN: {
        chunks.TextDeltaChunk: BlockState.OPEN,
        chunks.TextEndChunk: BlockState.CLOSED,
        chunks.ReasoningDeltaChunk: BlockState.OPEN,
        chunks.ReasoningEndChunk: BlockState.CLOSED,
        # Readers before 7.0.79 forget open blocks here, so a later delta would throw in the browser.
        chunks.FinishStepChunk: BlockState.CLOSED,
        chunks.ResetStepChunk: BlockState.CLOSED,
    },
}

_OUTPUTS: Final[Mapping[type[chunks.Chunk], ToolState]] = {
    chunks.ToolOutputAvailableChunk: ToolState.OUTPUT_AVAILABLE,
    chunks.ToolOutputErrorChunk: ToolState.OUTPUT_ERROR,
    chunks.ToolOutputDeniedChunk: ToolState.OUTPUT_DENIED,
}

TOOL_TRANSITIONS: Final[Mapping[ToolState, Mapping[type[chunks.Chunk], ToolState]]] = {
    ToolState.ABSENT: {
        chunks.ToolInputStartChunk: ToolState.INPUT_STREAMING,
        chunks.ToolInputAvailableChunk: ToolState.INPUT_AVAILABLE,
        chunks.ToolInputErrorChunk: ToolState.OUTPUT_ERROR,
    },
    ToolState.INPUT_STREAMING: {
        chunks.ToolInputDeltaChunk: ToolState.INPUT_STREAMING,
        chunks.ToolInputAvailableChunk: ToolState.INPUT_AVAILABLE,
        chunks.ToolInputErrorChunk: ToolState.OUTPUT_ERROR,
    },
    ToolState.INPUT_AVAILABLE: {
        chunks.ToolApprovalRequestChunk: ToolState.APPROVAL_REQUESTED,
        **_OUTPUTS,
    },
    ToolState.APPROVAL_REQUESTED: {
        chunks.ToolApprovalResponseChunk: ToolState.APPROVAL_RESPONDED,
        **_OUTPUTS,
    },
    ToolState.APPROVAL_RESPONDED: _OUTPUTS,
    # A later output replaces an earlier one: preliminary results, and results that come twice.
    ToolState.OUTPUT_AVAILABLE: _OUTPUTS,
    ToolState.OUTPUT_ERROR: _OUTPUTS,
    ToolState.OUTPUT_DENIED: _OUTPUTS,
}

SETTLED: Final = frozenset({ToolState.OUTPUT_AVAILABLE, ToolState.OUTPUT_ERROR, ToolState.OUTPUT_DENIED})
"""The states in which a call waits for nothing any more."""

_STATE_AFTER: Final = {chunk: state for row in TOOL_TRANSITIONS.values() for chunk, state in row.items()}


def tool_state_after(chunk: chunks.Chunk) -> ToolState:
    """Return the state that a tool chunk puts its call into, wherever the call stood before."""
    return _STATE_AFTER[type(chunk)]


# -- What a client says to a chunk that came without its prerequisite, word for word.

_STARTS: Final[Mapping[type[Chunk], tuple[str, str]]] = {
    chunks.TextDeltaChunk: ("text part", "text-start"),
    chunks.TextEndChunk: ("text part", "text-start"),
    chunks.ReasoningDeltaChunk: ("reasoning part", "reasoning-start"),
    chunks.ReasoningEndChunk: ("reasoning part", "reasoning-start"),
    chunks.ToolInputDeltaChunk: ("tool call", "tool-input-start"),
}
"""What is missing, and the chunk that would have made it."""

# The older readers look at the missing part without asking, and show what JavaScript says to that.
_TYPE_ERRORS: Final[Mapping[type[Chunk], str]] = {
    chunks.TextDeltaChunk: "Cannot read properties of undefined (reading 'text')",
    chunks.TextEndChunk: "Cannot set properties of undefined (setting 'state')",
    chunks.ReasoningDeltaChunk: "Cannot read properties of undefined (reading 'text')",
    chunks.ReasoningEndChunk: "Cannot read properties of undefined (reading 'providerMetadata')",
    chunks.ToolInputDeltaChunk: "Cannot read properties of undefined (reading 'text')",
}
_REASONING_END_WITH_METADATA: Final = "Cannot set properties of undefined (setting 'providerMetadata')"


def missing_prerequisite(chunk: Chunk, chunk_id: str, release: Release) -> UIMessageStreamError:
    """Return the error for a chunk whose block, tool call or approval (``chunk_id``) the release does not find."""
    text = _block_text(chunk, chunk_id, release) if type(chunk) in _STARTS else _call_text(chunk, chunk_id, release)
    return UIMessageStreamError(text, chunk_type=type_of(chunk), chunk_id=chunk_id)


def _block_text(chunk: Any, chunk_id: str, release: Release) -> str:
    if not reads(release, "named-missing-parts"):
        with_metadata = isinstance(chunk, chunks.ReasoningEndChunk) and chunk.provider_metadata is not None
        return _REASONING_END_WITH_METADATA if with_metadata else _TYPE_ERRORS[type(chunk)]
    name, start = _STARTS[type(chunk)]
    return (
        f'Received {type_of(chunk)} for missing {name} with ID "{chunk_id}". '
        f'Ensure a "{start}" chunk is sent before any "{type_of(chunk)}" chunks.'
    )


def _call_text(chunk: Chunk, chunk_id: str, release: Release) -> str:
    if isinstance(chunk, chunks.ToolApprovalResponseChunk):
        return f'No tool invocation found for approval ID "{chunk_id}".'
    if not reads(release, "outputs-find-either-kind"):
        return "tool-output-error must be preceded by a tool-input-available"
    if not reads(release, "named-missing-parts"):
        return f"no tool invocation found for tool call {chunk_id}"
    return f'No tool invocation found for tool call ID "{chunk_id}".'
