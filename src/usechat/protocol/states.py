"""Which chunk may follow which: the states of a text block and of a tool call, as two tables.

The UI message stream has few rules of order, and all of them are about two things. A *block* (text or reasoning, by its
id) is opened, grows and is closed. A *tool call* (by its id) goes through the states that the page shows. Each table
maps the state before and the class of the chunk to the state after; a pair that is not in the table is a move that no
stream of ours makes.

- The sender (:mod:`~usechat.protocol.stream`, :mod:`~usechat.protocol.tool_calls`) looks up every move where it makes
  it, with :func:`block_state_after` and :func:`tool_state_after`; further deltas of an open block repeat a move that
  was looked up. A missing pair is a bug of this package, not of the parts that were sent, and raises
  LocalProtocolError.
- The reader (:mod:`~usechat.protocol.message`) and the checker (:mod:`usechat.check`) look at streams of other senders.
  They ask whether a pair is in the table, and what a client does if it is not: it raises (:func:`missing_prerequisite`)
  or sets the state regardless (:func:`tool_state_set_by`).

The diagrams in ARCHITECTURE.md are generated from the tables. A property test demands that every move of generated
streams is in them, and that every pair is taken.
"""

import enum
from collections.abc import Mapping
from typing import Any, Final

from usechat.errors import LocalProtocolError, UIMessageStreamError
from usechat.protocol import chunks
from usechat.protocol.chunks import Chunk, type_of
from usechat.protocol.releases import Release, reads

__all__ = [
    "BLOCK_TRANSITIONS",
    "SETTLED",
    "TOOL_TRANSITIONS",
    "BlockState",
    "ToolState",
    "block_state_after",
    "missing_prerequisite",
    "tool_state_after",
    "tool_state_set_by",
]


class BlockState(enum.Enum):
    """A text or reasoning block, by its id."""

    CLOSED = "closed"
    OPEN = "open"


class ToolState(enum.StrEnum):
    """A tool call, by its id; the values are the ``state`` of the part on the page.

    >>> ToolState("output-error") is ToolState.OUTPUT_ERROR
    True
    """

    ABSENT = "absent"
    INPUT_STREAMING = "input-streaming"
    INPUT_AVAILABLE = "input-available"
    APPROVAL_REQUESTED = "approval-requested"
    APPROVAL_RESPONDED = "approval-responded"
    OUTPUT_AVAILABLE = "output-available"
    OUTPUT_ERROR = "output-error"
    OUTPUT_DENIED = "output-denied"


BLOCK_TRANSITIONS: Final[Mapping[BlockState, Mapping[type[Chunk], BlockState]]] = {
    BlockState.CLOSED: {
        chunks.TextStartChunk: BlockState.OPEN,
        chunks.ReasoningStartChunk: BlockState.OPEN,
        # Only here: clients before 7.0.79 forget open blocks at finish-step, and all of them at reset-step, so a later
        # delta would throw in the browser. Every block is ended before the step is.
        chunks.FinishStepChunk: BlockState.CLOSED,
        chunks.ResetStepChunk: BlockState.CLOSED,
    },
    BlockState.OPEN: {
        chunks.TextDeltaChunk: BlockState.OPEN,
        chunks.ReasoningDeltaChunk: BlockState.OPEN,
        chunks.TextEndChunk: BlockState.CLOSED,
        chunks.ReasoningEndChunk: BlockState.CLOSED,
    },
}

_OUTPUTS: Final[Mapping[type[Chunk], ToolState]] = {
    chunks.ToolOutputAvailableChunk: ToolState.OUTPUT_AVAILABLE,
    chunks.ToolOutputErrorChunk: ToolState.OUTPUT_ERROR,
}
_AGAIN: Final[Mapping[type[Chunk], ToolState]] = {
    chunks.ToolInputAvailableChunk: ToolState.INPUT_AVAILABLE,
}
_REQUEST: Final[Mapping[type[Chunk], ToolState]] = {
    chunks.ToolApprovalRequestChunk: ToolState.APPROVAL_REQUESTED,
}

TOOL_TRANSITIONS: Final[Mapping[ToolState, Mapping[type[Chunk], ToolState]]] = {
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
    # A denial needs an approval on the page; without one the part does not validate (validateUIMessages). A call is
    # announced again to change who is said to run it (tool_calls).
    ToolState.INPUT_AVAILABLE: {**_AGAIN, **_REQUEST, **_OUTPUTS},
    # A request may be made again, also after an answer: the newest replaces the one that the part shows. An outcome
    # behind a request that has no answer does not validate.
    ToolState.APPROVAL_REQUESTED: {
        **_AGAIN,
        **_REQUEST,
        chunks.ToolApprovalResponseChunk: ToolState.APPROVAL_RESPONDED,
    },
    ToolState.APPROVAL_RESPONDED: {**_REQUEST, **_OUTPUTS, chunks.ToolOutputDeniedChunk: ToolState.OUTPUT_DENIED},
    # A later output replaces an earlier one: preliminary results, and results that come twice. It would contradict a
    # denial (validateUIMessages). A request would contradict a preliminary result: the call is announced again first.
    ToolState.OUTPUT_AVAILABLE: {**_AGAIN, **_OUTPUTS},
    ToolState.OUTPUT_ERROR: _OUTPUTS,
    ToolState.OUTPUT_DENIED: {},
}

SETTLED: Final = frozenset({ToolState.OUTPUT_AVAILABLE, ToolState.OUTPUT_ERROR, ToolState.OUTPUT_DENIED})
"""The states in which a call waits for nothing any more."""

_SET_BY: Final = {chunk: state for row in TOOL_TRANSITIONS.values() for chunk, state in row.items()}


def block_state_after(state: BlockState, chunk: Chunk) -> BlockState:
    """Look up the state of a block after a chunk; LocalProtocolError if the table has no such move."""
    after = BLOCK_TRANSITIONS[state].get(type(chunk))
    if after is None:
        raise _illegal("block", getattr(chunk, "id", None), state, chunk)
    return after


def tool_state_after(state: ToolState, chunk: Chunk) -> ToolState:
    """Look up the state of a tool call after a chunk; LocalProtocolError if the table has no such move."""
    after = TOOL_TRANSITIONS[state].get(type(chunk))
    if after is None:
        raise _illegal("tool call", getattr(chunk, "tool_call_id", None), state, chunk)
    return after


def tool_state_set_by(chunk: Chunk) -> ToolState:
    """Return the state that a tool chunk gives to its part on the page: clients do not look at the state before."""
    return _SET_BY[type(chunk)]


def _illegal(what: str, chunk_id: str | None, state: BlockState | ToolState, chunk: Chunk) -> LocalProtocolError:
    transitions: Mapping[Any, Mapping[type[Chunk], Any]] = (
        BLOCK_TRANSITIONS if isinstance(state, BlockState) else TOOL_TRANSITIONS
    )
    legal = ", ".join(sorted(str(kind.__struct_config__.tag) for kind in transitions[state]))
    named = what if chunk_id is None else f"{what} {chunk_id!r}"
    return LocalProtocolError(
        f"{type_of(chunk)!r} is illegal for the {named} while it is {state.value}; legal here: {legal}",
        chunk_type=type_of(chunk),
        chunk_id=chunk_id,
    )


# The error of each client for a chunk without its prerequisite, word for word

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
