import pytest

from usechat.protocol import chunks
from usechat.protocol.chunks import Chunk
from usechat.protocol.releases import release
from usechat.protocol.states import missing_prerequisite

READ_TEXT = "Cannot read properties of undefined (reading 'text')"
PRECEDED = "tool-output-error must be preceded by a tool-input-available"


@pytest.mark.parametrize(
    ("chunk", "before", "since"),
    [
        (
            chunks.TextDeltaChunk("x", "d"),
            READ_TEXT,
            'Received text-delta for missing text part with ID "x". '
            'Ensure a "text-start" chunk is sent before any "text-delta" chunks.',
        ),
        (
            chunks.TextEndChunk("x"),
            "Cannot set properties of undefined (setting 'state')",
            'Received text-end for missing text part with ID "x". '
            'Ensure a "text-start" chunk is sent before any "text-end" chunks.',
        ),
        (
            chunks.ReasoningDeltaChunk("x", "d"),
            READ_TEXT,
            'Received reasoning-delta for missing reasoning part with ID "x". '
            'Ensure a "reasoning-start" chunk is sent before any "reasoning-delta" chunks.',
        ),
        (
            chunks.ReasoningEndChunk("x"),
            "Cannot read properties of undefined (reading 'providerMetadata')",
            'Received reasoning-end for missing reasoning part with ID "x". '
            'Ensure a "reasoning-start" chunk is sent before any "reasoning-end" chunks.',
        ),
        (
            chunks.ReasoningEndChunk("x", {}),
            "Cannot set properties of undefined (setting 'providerMetadata')",
            'Received reasoning-end for missing reasoning part with ID "x". '
            'Ensure a "reasoning-start" chunk is sent before any "reasoning-end" chunks.',
        ),
        (
            chunks.ToolInputDeltaChunk("x", "d"),
            READ_TEXT,
            'Received tool-input-delta for missing tool call with ID "x". '
            'Ensure a "tool-input-start" chunk is sent before any "tool-input-delta" chunks.',
        ),
    ],
)
def test_a_missing_block_is_named_since_6_0_35(chunk: Chunk, before: str, since: str) -> None:
    texts = [str(missing_prerequisite(chunk, "x", release(sdk))) for sdk in ("5", "6.0.34", "6.0.35", "7.0.0")]
    assert texts == [before, before, since, since]


@pytest.mark.parametrize(
    ("sdk", "text"),
    [
        ("5", PRECEDED),
        ("6.0.34", "no tool invocation found for tool call x"),
        ("6.0.35", 'No tool invocation found for tool call ID "x".'),
        ("7", 'No tool invocation found for tool call ID "x".'),
    ],
)
def test_a_missing_call_is_named_differently_in_each_major(sdk: str, text: str) -> None:
    for chunk in (chunks.ToolOutputAvailableChunk("x", 1), chunks.ToolOutputErrorChunk("x", "failed")):
        assert str(missing_prerequisite(chunk, "x", release(sdk))) == text


def test_the_error_says_which_chunk_it_was() -> None:
    error = missing_prerequisite(chunks.ToolApprovalResponseChunk("a", True), "a", release("7"))
    assert str(error) == 'No tool invocation found for approval ID "a".'
    assert (error.chunk_type, error.chunk_id) == ("tool-approval-response", "a")
