"""Which AI SDK release accepts what: the tables through which releases are compared.

A row holds the first patch release of 5.0, 6.0 and 7.0 that knows a chunk or a field; ``None`` means that no release of
that major does. Source: the published ``ai`` packages, release by release.
"""

import functools
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import FieldInfo

from usechat.errors import UnknownRelease
from usechat.protocol.chunks import CHUNK_TYPES, Chunk

__all__ = [
    "APPROVALS",
    "CHUNKS",
    "DOWNGRADES",
    "FINISH_REASONS",
    "MAJORS",
    "NEWEST",
    "PARTS",
    "READER",
    "STRICT_UNTIL",
    "Release",
    "Releases",
    "holds",
    "reads",
    "release",
    "releases_for",
]


class Release(NamedTuple):
    """One release of the npm package ``ai``."""

    major: int
    minor: int
    patch: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


class Since(NamedTuple):
    """The first patch release of each major that has a thing; ``None`` where none has."""

    five: int | None
    six: int | None
    seven: int | None

    def includes(self, candidate: Release) -> bool:
        """Tell whether ``candidate`` has the thing."""
        first = self[candidate.major - 5]
        return first is not None and candidate[1:] >= (0, first)


class ChunkRow(NamedTuple):
    """When a chunk type appeared, and its optional fields that appeared later or only in some majors."""

    since: Since
    fields: Mapping[str, Since]


MAJORS: Final = (5, 6, 7)
NEWEST: Final = {5: Release(5, 0, 277), 6: Release(6, 0, 326), 7: Release(7, 0, 170)}
STRICT_UNTIL: Final = {5: Release(5, 0, 216), 6: Release(6, 0, 230), 7: Release(7, 0, 31)}
"""The last release of each major that rejects a chunk for one key it does not know."""

_ALWAYS: Final = Since(0, 0, 0)
_SIX: Final = Since(None, 0, 0)
_SEVEN: Final = Since(None, None, 0)
_TOOL_METADATA: Final = Since(None, 176, 0)
_OUTPUT_METADATA: Final = Since(None, 120, 0)

CHUNKS: Final[Mapping[str, ChunkRow]] = {
    **{chunk_type: ChunkRow(_ALWAYS, {}) for chunk_type in CHUNK_TYPES},
    "data": ChunkRow(_ALWAYS, {}),
    "finish": ChunkRow(_ALWAYS, {"finishReason": Since(92, 0, 0)}),
    "abort": ChunkRow(_ALWAYS, {"reason": Since(None, 15, 0)}),
    "text-end": ChunkRow(_ALWAYS, {"citations": Since(None, None, 138)}),
    "tool-input-start": ChunkRow(
        _ALWAYS,
        {
            "title": _SIX,
            "providerMetadata": Since(None, 39, 0),
            "toolMetadata": _TOOL_METADATA,
            "inputEncoding": Since(None, 308, 142),
        },
    ),
    "tool-input-available": ChunkRow(_ALWAYS, {"title": _SIX, "toolMetadata": _TOOL_METADATA}),
    "tool-input-error": ChunkRow(Since(7, 0, 0), {"title": _SIX, "toolMetadata": _TOOL_METADATA}),
    "tool-output-available": ChunkRow(
        _ALWAYS,
        {"preliminary": Since(11, 0, 0), "providerMetadata": _OUTPUT_METADATA, "toolMetadata": _TOOL_METADATA},
    ),
    "tool-output-error": ChunkRow(_ALWAYS, {"providerMetadata": _OUTPUT_METADATA, "toolMetadata": _TOOL_METADATA}),
    "tool-output-denied": ChunkRow(_SIX, {}),
    "tool-approval-request": ChunkRow(
        _SIX,
        {
            "signature": Since(None, 202, 0),
            "approvalDescriptor": Since(None, 274, 87),
            "inputSchemaInput": Since(None, 290, 113),
            "isAutomatic": _SEVEN,
            "reason": Since(None, None, 82),
        },
    ),
    "tool-approval-response": ChunkRow(_SEVEN, {}),
    "reasoning-file": ChunkRow(_SEVEN, {}),
    "custom": ChunkRow(_SEVEN, {}),
    "reset-step": ChunkRow(Since(None, None, 70), {}),
    "steering-message": ChunkRow(Since(None, None, 163), {}),
}

FINISH_REASONS: Final[Mapping[str, Since]] = {
    "stop": _ALWAYS,
    "length": _ALWAYS,
    "content-filter": _ALWAYS,
    "tool-calls": _ALWAYS,
    "error": _ALWAYS,
    "other": _ALWAYS,
    "unknown": Since(0, None, None),
    "interrupted": Since(None, None, 149),
}


class Downgrade(NamedTuple):
    """One row of what is sent instead of what a client does not support."""

    said: str
    unknown_to: str
    sent: str


DOWNGRADES: Final = (
    Downgrade("the finish reason", "before 5.0.92, `any`", "`finishReason` in the message metadata"),
    Downgrade("the finish reason `unknown`", "6, 7, `any`", "`other`"),
    Downgrade("the finish reason `interrupted`", "5, 6, before 7.0.149, `any`", "`other`"),
    Downgrade("any other finish reason", "all", "`other`"),
    Downgrade(
        "`ToolInputError`", "before 5.0.7, `any`", "`tool-input-available` and `tool-output-error` for the same call"
    ),
    Downgrade(
        "a preliminary `ToolResult`",
        "before 5.0.11, `any`",
        "nothing; the last one becomes the result if no final one follows",
    ),
    Downgrade(
        "`ApprovalRequest`",
        "5",
        "a call of the client tool `approval`, in a separate step at the end of the turn; its output"
        " `{approved, reason?}` is the answer",
    ),
    Downgrade(
        "`ApprovalRequest`", "6, `any`", "`tool-approval-request` at the end of the turn, if it is still pending then"
    ),
    Downgrade("`ApprovalRequest` that is automatic", "5, 6, `any`", "nothing; the tool runs or is denied"),
    Downgrade(
        "`ApprovalResponse`",
        "5, 6, `any`",
        "nothing: the outcome follows. To 5: the output of the tool `approval`, if an earlier turn requested it",
    ),
    Downgrade(
        "the outcome of a call, or an `ApprovalResponse`, if the page left its approval unanswered in an earlier turn",
        "6, `any`",
        "nothing: the page still shows the approval, because the part would not validate with an outcome",
    ),
    Downgrade(
        "a result, an error or an approval for a call that the page denied in an earlier turn",
        "6, `any`",
        "`tool-output-denied`",
    ),
    Downgrade(
        "`ToolDenied`",
        "5; 6 and `any` unless the page denied the call in an earlier turn",
        "`tool-output-error` with the reason in its text",
    ),
    Downgrade("`ReasoningFile`", "5, 6, `any`", "`file`"),
    Downgrade("`Custom`", "5, 6, `any`", "`data-custom` with `{kind, providerMetadata?}`"),
    Downgrade("`SteeringMessage`", "5, 6, before 7.0.163, `any`", "`data-steering-message` with `{id, parts}`"),
    Downgrade("citations of a text block", "5, 6, before 7.0.138, `any`", "`data-citations` with `{citations}`"),
    Downgrade("`ResetStep`", "5, 6, before 7.0.70, `any`", "a new step; the discarded content stays visible"),
    Downgrade(
        "`title`, `tool_metadata`, `input_encoding`, `signature`, `descriptor`, an abort's `reason` and the like",
        "where the table below says so",
        "left out and counted in `MessageStream.downgraded`",
    ),
)


APPROVALS: Final = frozenset({"tool-approval-request", "tool-output-denied"})
"""The chunks of approvals that AI SDK 6 and 7 share. They are sent for ``any``, though AI SDK 5 has no approvals."""


class Releases:
    """What may be sent to a set of releases: only what every one of them accepts.

    ``any`` makes one exception: approvals are sent as AI SDK 6 and 7 know them, because stock pages show no buttons for
    anything else. A page of AI SDK 5 rejects them; it needs the ``sdk`` setting ``5``.
    """

    def __init__(self, name: str, releases: tuple[Release, ...]) -> None:
        self.name = name
        self.releases = releases
        self._known: dict[tuple[str, str | None], bool] = {}
        self._unknown_fields: dict[type, tuple[FieldInfo, ...]] = {
            struct: tuple(
                field for field in msgspec.structs.fields(struct) if not self.knows(chunk_type, field.encode_name)
            )
            for chunk_type, struct in CHUNK_TYPES.items()
        }

    def __repr__(self) -> str:
        return f"releases_for({self.name!r})"

    def knows(self, chunk_type: str, field: str | None = None) -> bool:
        """Tell whether every release knows the chunk type (any ``data-*`` is ``data``), or this field of it."""
        if (is_known := self._known.get((chunk_type, field))) is None:
            is_known = self._known[chunk_type, field] = self._look_up(chunk_type, field)
        return is_known

    def _look_up(self, chunk_type: str, field: str | None) -> bool:
        row = CHUNKS[chunk_type]
        since = row.since if field is None else row.fields.get(field, row.since)
        candidates = self.releases if self.name != "any" or chunk_type not in APPROVALS else self.releases[1:]
        return all(since.includes(candidate) for candidate in candidates)

    def unknown_fields(self, chunk: Chunk) -> list[FieldInfo]:
        """Return the fields of a chunk that carry a value some release would not know."""
        unknown = self._unknown_fields.get(type(chunk))  # none of data-*
        return [field for field in unknown if getattr(chunk, field.name) is not field.default] if unknown else []

    def finish_reason(self, reason: str) -> str:
        """Fold a finish reason into one that every release accepts."""
        since = FINISH_REASONS.get(reason)
        accepted = since is not None and all(since.includes(candidate) for candidate in self.releases)
        return reason if accepted else "other"


def release(text: str) -> Release:
    """Read a concrete release such as ``6.0.150``, or ``6`` for the newest of that major."""
    if match := re.fullmatch(r"([567])(?:\.(\d{1,4})\.(\d{1,5}))?", str(text)):
        major = int(match[1])
        return Release(major, int(match[2]), int(match[3])) if match[2] else NEWEST[major]
    raise UnknownRelease(
        f"{text!r} is not an AI SDK release; give 5, 6 or 7 for the newest of that major, or one such as 6.0.150"
    )


@functools.lru_cache(maxsize=64)
def releases_for(sdk: str) -> Releases:
    """Return the releases behind a server's ``sdk`` setting: ``any``, a major, or one release."""
    if sdk == "any":
        return Releases(sdk, tuple(Release(major, 0, 0) for major in MAJORS))
    try:
        return Releases(sdk, (release(sdk),))
    except UnknownRelease as error:
        raise UnknownRelease(f"{error}, or any for what every release accepts") from None


READER: Final[Mapping[str, Since]] = {
    # How a release's reader (processUIMessageStream) builds the message, where that changed.
    # Fields of chunks are read since they are known (CHUNKS), unless a row here says otherwise.
    "blocks-outlive-steps": Since(None, None, 79),  # before: finish-step forgets open text and reasoning
    "reasoning-id": Since(234, 253, 63),
    "file-provider-metadata": Since(None, 114, 0),
    "metadata-skips-prototype-keys": Since(181, 171, 0),
    "named-missing-parts": Since(None, 35, 0),  # before: JavaScript's own TypeErrors
    # Which part a tool chunk is about.
    "tool-calls-belong-to-steps": Since(218, 233, 33),  # before: the first part of the whole message
    "outputs-find-either-kind": _SIX,  # before: `dynamic` of the output decides, and must match
    "input-errors-find-either-kind": Since(None, 101, 0),
    "streaming-calls-are-restored": Since(270, 297, 122),
    # What it does to the part.
    "type-follows-tool-name": Since(None, 313, 147),
    "raw-input": Since(7, 0, 0),
    "raw-input-while-streaming": Since(270, 297, 122),
    "input-error-keeps-input": Since(None, None, 119),  # before: only dynamic parts; static ones have it as rawInput
    "provider-executed-on-dynamic-parts": Since(86, 0, 0),  # and on errors of static ones
    "provider-executed-on-dynamic-outputs": _SIX,
    "call-metadata-in-every-state": Since(None, 39, 0),  # before: on input-available, or when the part is created
    "result-metadata": _OUTPUT_METADATA,
    "tool-metadata-of-outputs": Since(None, 296, 120),
    # What an answered approval keeps of its request.
    "approval-keeps-signature": Since(None, None, 19),
    "approval-keeps-request-reason": Since(None, None, 82),
    "approval-keeps-everything": Since(None, None, 87),
    # The repair of tool input that is still being written (parsePartialJson).
    "partial-json-whole-escapes": Since(None, 208, 0),
    "partial-json-empty-arrays": Since(None, None, 158),
}


def reads(candidate: Release, behaviour: str) -> bool:
    """Tell whether the reader of this release has a behaviour of the ``READER`` table."""
    return READER[behaviour].includes(candidate)


PARTS: Final[Mapping[str, Since]] = {
    # Which parts and keys of a UIMessage validateUIMessages knows; what has no row is in every release.
    # ``tool`` is either kind of tool part, the state of one stands for it where the keys differ by state.
    "custom": _SEVEN,
    "reasoning-file": _SEVEN,
    "steering-message": Since(None, None, 163),
    "text.citations": Since(None, None, 138),
    "reasoning.id": Since(234, 253, 63),
    "file.providerReference": _SEVEN,
    "tool.title": Since(None, None, 93),
    "tool.toolMetadata": _TOOL_METADATA,
    "tool.resultProviderMetadata": _OUTPUT_METADATA,
    "tool.inputEncoding": Since(None, 308, 142),
    "input-streaming.rawInput": Since(270, 297, 122),
    "input-streaming.callProviderMetadata": Since(None, 39, 0),
    "output-error.rawInput": Since(250, 21, 0),
    "output-error-without-input": Since(250, 182, 0),
    "assistant-without-parts": Since(213, 226, 27),
    "dynamic-tool.dynamic": Since(273, 302, 129),
    "dynamic-tool.providerExecuted": Since(86, 0, 0),
    "dynamic-tool.approval": _SIX,
    "approval.signature": Since(None, 202, 0),
    "approval.descriptor": Since(None, 274, 87),
    "approval.inputSchemaInput": Since(None, 290, 113),
    "approval.isAutomatic": _SEVEN,
    "approval.requestReason": Since(None, None, 82),
    # With tools: input is checked before there is a result too, and a denied call of an unknown tool is a finished one.
    "tools-checked-in-every-state": _SIX,
}


def holds(candidate: Release, part_or_key: str) -> bool:
    """Tell whether messages of this release have a part or key; the names are those of the ``PARTS`` table."""
    return part_or_key not in PARTS or PARTS[part_or_key].includes(candidate)
