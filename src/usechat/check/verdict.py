"""The verdict of one AI SDK release on a stream, frame by frame and without I/O.

A client stops at the first chunk that it cannot accept, and so does the :class:`Verdict`: ``ok``, ``status``, ``error``
and ``message`` are what ``useChat`` of that release has afterwards. The tests compare them with the npm packages.

A report should name all problems, not just the first. So :class:`ReleaseJudge` reads on after its verdict is settled:
it repairs the chunk by leaving out the keys that the release refuses, and applies the rest. If that leaves no valid
chunk, there is a gap, and problems with the order of chunks are no longer reported: each could be caused by the missing
chunk.

The judge asks three tables in turn: is the text JSON (:mod:`~usechat.check.frames`), is the value a chunk of this
release (:mod:`usechat.protocol.schema`), may the chunk come now (:class:`~usechat.protocol.message.MessageBuilder`,
which throws what the client throws). :class:`~usechat.check.order.Order` then names the rule for a chunk that came at
the wrong time.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Literal

import msgspec

from usechat.check.deltas import Delta
from usechat.check.endings import ghosts, overtaken_calls, stalled_calls
from usechat.check.frames import Frame, PrototypeKey
from usechat.check.hints import fix_for, fix_for_unreadable
from usechat.check.order import Note, Order
from usechat.check.page import Page
from usechat.check.problems import Finding
from usechat.errors import InvalidChunk, StreamFailed, UIMessageStreamError
from usechat.protocol.chunks import Chunk, chunk_from_json, type_of
from usechat.protocol.message import MessageBuilder
from usechat.protocol.releases import Release, Since
from usechat.protocol.schema import Flaw, FlawKind, chunk_fields, flaws, is_alike, is_without_effect
from usechat.protocol.ui_messages import UIMessage
from usechat.protocol.values import json_text

__all__ = [
    "CLIENT_ID",
    "ReleaseJudge",
    "Verdict",
    "judge",
    "repaired_chunk",
]


CLIENT_ID: Final = "client-generated"
"""Stands for the random id that the client generates when `start` has none."""

_RULES: Final = {
    FlawKind.NOT_AN_OBJECT: "UC201",
    FlawKind.NO_TYPE: "UC202",
    FlawKind.UNKNOWN_TYPE: "UC203",
    FlawKind.UNSUPPORTED_TYPE: "UC204",
    FlawKind.MISSING_KEY: "UC205",
    FlawKind.NULL: "UC206",
    FlawKind.WRONG_TYPE: "UC207",
    FlawKind.PROVIDER_METADATA: "UC208",
    FlawKind.FINISH_REASON: "UC209",
    FlawKind.UNKNOWN_KEY: "UC210",
    FlawKind.UNSUPPORTED_KEY: "UC211",
}
_READS_NULL_CONSTRUCTOR: Final = Since(146, 115, 0)
"""Earlier releases looked up `prototype` in null and failed (secure-json-parse of @ai-sdk/provider-utils)."""


class Verdict(msgspec.Struct, frozen=True):
    """The result of reading a stream with one release.

    ``ok``: the client read the stream to its end or to an `error` chunk, and it was not empty. ``status``, ``error``
    and ``message`` are those of `useChat` afterwards; a legal stream with an `error` chunk is ok with status "error".
    ``is_shortened`` says that ``message`` is only the beginning of the message, because the whole is too large to keep.

    >>> verdict = Verdict(ok=False, status="error", error="Not found")
    >>> verdict.to_json()
    {'ok': False, 'status': 'error', 'error': 'Not found', 'message': None}
    """

    ok: bool
    status: Literal["ready", "error"]
    error: str | None = None
    message: Any = None
    is_shortened: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the verdict as JSON values, as in the report; of a message that is not whole it says so."""
        verdict = {"ok": self.ok, "status": self.status, "error": self.error, "message": self.message}
        return verdict | {"messageIsShortened": True} if self.is_shortened else verdict


def judge(frames: Iterable[Frame], release: Release) -> Verdict:
    """Return the verdict of one release on the events of a stream.

    >>> from usechat.check.frames import Body
    >>> from usechat.protocol.releases import release
    >>> body = b'data: {"type":"start","messageId":"m"}\\n\\ndata: {"type":"ping"}\\n\\n'
    >>> verdict = judge(Body([body]).frames(), release("6"))
    >>> verdict.ok, verdict.status, verdict.error.partition(":")[0]
    (False, 'error', 'Type validation failed')
    """
    judged = ReleaseJudge(release)
    order = Order()
    for frame in frames:
        judged.receive(frame, order)
    return judged.verdict()


class ReleaseJudge:
    """Reads frames as the client of one release does, and continues after the verdict to find further problems."""

    def __init__(self, release: Release, continues: UIMessage | None = None) -> None:
        self._release = release
        message_id = continues["id"] if continues and continues["role"] == "assistant" else CLIENT_ID
        builder = MessageBuilder(sdk=str(release), message_id=message_id, message=continues)
        self._page = Page(builder, message_id)
        self._verdict: Verdict | None = None
        self._failed = False
        self._has_gap = False
        self._is_empty = True

    def receive(self, frame: Frame, order: Order, legal: Chunk | None = None) -> list[Finding]:
        """Take the next frame and return the problems that this release has with it.

        ``order`` has seen the chunks before; ``legal`` is the chunk in the frame, if the newest release accepts it.
        """
        if self._failed or frame.is_done:
            return []
        self._is_empty = False
        if frame.unreadable is not None:
            finding = Finding(
                frame.unreadable.rule, frame.text[:80], frame.unreadable.reason, fix_for_unreadable(frame.text)
            )
            return self._reject_text(frame, finding)
        if frame.prototype_key is PrototypeKey.FORBIDDEN or (
            frame.prototype_key and not _READS_NULL_CONSTRUCTOR.includes(self._release)
        ):
            return self._reject_text(frame, Finding("UC106", "", "a key reaches for a prototype"))
        if legal is not None and is_alike(frame.value, self._release):
            return self._apply(legal, order)
        chunk_flaws = flaws(frame.value, self._release)
        if chunk_flaws and self._verdict is None:
            self._reject(_validation_error(frame.value, chunk_flaws))
        findings = [_finding(flaw, frame.value) for flaw in chunk_flaws]
        if not chunk_flaws and is_without_effect(frame.value["type"], self._release):
            return []
        chunk = repaired_chunk(frame.value, chunk_flaws, self._release)
        if chunk is None:
            self._has_gap = True
            return findings
        return findings + self._apply(chunk, order)

    def go_on(self, delta: Delta, order: Order) -> None:
        """Take more text of the block that the last frame continued without a problem."""
        self._apply(delta, order)

    def forget(self, messages: list[Any]) -> None:
        """Keep no more of the message than it has now, and share it; see :meth:`~usechat.check.page.Page.forget`."""
        self._page.forget(messages)

    def cut(self, error: str) -> None:
        """Record that the connection broke: the client shows ``error``, unless it stopped reading before."""
        self._reject(error)

    def verdict(self, *, is_whole: bool = True) -> Verdict:
        """Return the verdict after the last frame; ``is_whole`` says whether the stream was read to its end."""
        ok = not (self._is_empty and is_whole)
        return self._verdict or Verdict(ok, "ready", None, self._page.message(), self._page.is_shortened)

    def end(self, order: Order) -> Iterator[Note]:
        """Yield the problems of tool parts that the whole stream, if it ended well, leaves on the page."""
        if self._verdict is not None or order.was_aborted:
            return
        parts = self._page.parts()
        for tool_call_id in ghosts(parts, order.explained_calls()):
            text = f'a part of the tool call "{tool_call_id}" stays in the state input-streaming'
            yield Finding("UC424", tool_call_id, text), order.place_of(tool_call_id)
        for tool_call_id in stalled_calls(parts, self._release, waits_for_page=order.waits_for_page):
            text = f'the page is asked about the tool call "{tool_call_id}", and no client sends its answer'
            yield Finding("UC425", tool_call_id, text), order.place_of(tool_call_id)
        for tool_call_id in overtaken_calls(parts, self._release, waits_for_page=order.waits_for_page):
            text = f'clients send the chat while the page is still asked about the tool call "{tool_call_id}"'
            yield Finding("UC427", tool_call_id, text), order.place_of(tool_call_id)

    def _stop(self, ok: bool, error: str) -> None:
        """Settle the verdict where the client stops reading, if it has not stopped before."""
        if self._verdict is None:
            self._verdict = Verdict(ok, "error", error, self._page.copy_of_message(), self._page.is_shortened)

    def _reject(self, error: str) -> None:
        self._stop(False, error)

    def _reject_text(self, frame: Frame, finding: Finding) -> list[Finding]:
        self._reject(f"JSON parsing failed: Text: {frame.text}.\nError message: {finding.what}")
        self._has_gap = True
        return [finding]

    def _apply(self, chunk: Chunk, order: Order) -> list[Finding]:
        try:
            self._page.receive(chunk)
        except StreamFailed as error:
            self._stop(True, str(error))
            self._failed = True
        except UIMessageStreamError as error:
            self._reject(str(error))
            if not self._has_gap:
                rule = order.rule_for_missing(chunk)
                return [Finding(rule, str(error.chunk_id), _refusal(rule, chunk, error.chunk_id))]
        return []


def repaired_chunk(value: Any, chunk_flaws: Sequence[Flaw], release: Release) -> Chunk | None:
    """Return the chunk as a release reads it, without unknown and invalid keys; None if that is no valid chunk."""
    if not isinstance(value, dict):
        return None
    if not chunk_flaws and is_alike(value, release):
        return chunk_from_json(value)
    chunk_type = str(value.get("type"))
    # The whole object of a data-* chunk becomes the part: unknown keys are kept.
    keys = frozenset(value) if chunk_type.startswith("data-") else chunk_fields(chunk_type, release)
    if keys is None:
        return None
    wrong = {re.split(r"[.\[]", flaw.path.removeprefix("$."))[0] for flaw in chunk_flaws}
    value = {key: item for key, item in value.items() if key == "type" or (key in keys and key not in wrong)}
    try:
        return chunk_from_json(value)
    except InvalidChunk:
        return None


def _validation_error(value: Any, chunk_flaws: list[Flaw]) -> str:
    texts = "; ".join(flaw.text for flaw in chunk_flaws)
    return f"Type validation failed: Value: {json_text(value)}.\nError message: {texts}"


def _finding(flaw: Flaw, value: Any) -> Finding:
    chunk_type = value.get("type") if isinstance(value, dict) else None
    is_about_key = flaw.path not in ("$", "$.type")
    what = f"{json_text(chunk_type)}: {flaw.text}" if is_about_key else flaw.text
    key = flaw.path if flaw.kind is FlawKind.UNKNOWN_KEY else f"{chunk_type} {flaw.path}"
    return Finding(_RULES[flaw.kind], key, what, fix_for(flaw, value))


def _refusal(rule: str, chunk: Chunk, chunk_id: str | None) -> str:
    """Return in words why the client refuses the chunk."""
    name = f'"{type_of(chunk)}"'
    match rule:
        case "UC301":
            return f'{name} for the block "{chunk_id}", which was never opened'
        case "UC302":
            return f'{name} for the block "{chunk_id}", which has ended'
        case "UC303":
            return f'{name} for the block "{chunk_id}", which `finish-step` has closed'
        case "UC304":
            return f'{name} for the tool call "{chunk_id}", which was never started'
        case "UC306":
            return f'{name} for the tool call "{chunk_id}" does not say `dynamic` as its input did'
        case "UC307":
            return f'{name} for the approval "{chunk_id}", which was never requested'
        case "UC308":
            return f"the metadata of {name} cannot be merged into what the message has"
        case _:
            return f'{name} for the tool call "{chunk_id}", which is not there'
