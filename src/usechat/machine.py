"""What may follow what: the life of a text block and of a tool call, as tables.

The sender (:mod:`usechat.stream`) asks them what it must send first; the reader (:mod:`usechat.message`) asks them what
state a part is in and which chunk came without its prerequisite.
"""

import enum
from collections.abc import Mapping
from typing import Final

from usechat import chunks

__all__ = ["BLOCK_TRANSITIONS", "SETTLED", "TOOL_TRANSITIONS", "BlockState", "ToolState", "tool_state_after"]


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
        chunks.TextStart: BlockState.OPEN,
        chunks.ReasoningStart: BlockState.OPEN,
    },
    BlockState.OPEN: {
        chunks.TextDelta: BlockState.OPEN,
        chunks.TextEnd: BlockState.CLOSED,
        chunks.ReasoningDelta: BlockState.OPEN,
        chunks.ReasoningEnd: BlockState.CLOSED,
        # Readers before 7.0.79 forget open blocks here, so a later delta would throw in the browser.
        chunks.FinishStep: BlockState.CLOSED,
        chunks.ResetStep: BlockState.CLOSED,
    },
}

_OUTPUTS: Final[Mapping[type[chunks.Chunk], ToolState]] = {
    chunks.ToolOutputAvailable: ToolState.OUTPUT_AVAILABLE,
    chunks.ToolOutputError: ToolState.OUTPUT_ERROR,
    chunks.ToolOutputDenied: ToolState.OUTPUT_DENIED,
}

TOOL_TRANSITIONS: Final[Mapping[ToolState, Mapping[type[chunks.Chunk], ToolState]]] = {
    ToolState.ABSENT: {
        chunks.ToolInputStart: ToolState.INPUT_STREAMING,
        chunks.ToolInputAvailable: ToolState.INPUT_AVAILABLE,
        chunks.ToolInputError: ToolState.OUTPUT_ERROR,
    },
    ToolState.INPUT_STREAMING: {
        chunks.ToolInputDelta: ToolState.INPUT_STREAMING,
        chunks.ToolInputAvailable: ToolState.INPUT_AVAILABLE,
        chunks.ToolInputError: ToolState.OUTPUT_ERROR,
    },
    ToolState.INPUT_AVAILABLE: {
        chunks.ToolApprovalRequest: ToolState.APPROVAL_REQUESTED,
        **_OUTPUTS,
    },
    ToolState.APPROVAL_REQUESTED: {
        chunks.ToolApprovalResponse: ToolState.APPROVAL_RESPONDED,
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
