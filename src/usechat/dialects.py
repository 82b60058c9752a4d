"""Which AI SDK release accepts what: the one table of versions. No other module compares releases.

A row holds the first patch release of 5.0, 6.0 and 7.0 that knows a chunk or a field; ``None`` means that no release of
that major does. Source: the published ``ai`` packages, release by release.
"""

import functools
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from usechat.chunks import CHUNK_TYPES, Chunk, Data, type_of
from usechat.errors import UnknownRelease

__all__ = ["CHUNKS", "FINISH_REASONS", "MAJORS", "NEWEST", "STRICT_UNTIL", "Dialect", "Release", "dialect", "release"]


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
NEWEST: Final = {5: Release(5, 0, 277), 6: Release(6, 0, 326), 7: Release(7, 0, 169)}
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
    "tool-output-error": ChunkRow(
        _ALWAYS, {"providerMetadata": _OUTPUT_METADATA, "toolMetadata": _TOOL_METADATA}
    ),
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

class Dialect:
    """What may be sent to a set of releases: only what every one of them accepts."""

    def __init__(self, name: str, releases: tuple[Release, ...]) -> None:
        self.name = name
        self.releases = releases
        self._unknown_fields = {
            chunk_type: tuple(
                (field.name, field.default)
                for field in msgspec.structs.fields(struct)
                if not self.knows(chunk_type, field.encode_name)
            )
            for chunk_type, struct in CHUNK_TYPES.items()
        }

    def __repr__(self) -> str:
        return f"dialect({self.name!r})"

    def knows(self, chunk_type: str, field: str | None = None) -> bool:
        """Tell whether every release knows the chunk type (any ``data-*`` is ``data``), or this field of it."""
        row = CHUNKS[chunk_type]
        since = row.since if field is None else row.fields.get(field, row.since)
        return all(since.includes(candidate) for candidate in self.releases)

    def unknown_fields(self, chunk: Chunk) -> list[str]:
        """Return the fields of a chunk that carry a value some release would not know."""
        if isinstance(chunk, Data):
            return []
        unknown = self._unknown_fields[type_of(chunk)]
        return [name for name, default in unknown if getattr(chunk, name) is not default]

    def finish_reason(self, reason: str) -> str:
        """Fold a finish reason into one that every release accepts."""
        since = FINISH_REASONS.get(reason)
        accepted = since is not None and all(since.includes(candidate) for candidate in self.releases)
        return reason if accepted else "other"


def release(text: str) -> Release:
    """Read a concrete release such as ``6.0.150``, or ``6`` for the newest of that major."""
    if match := re.fullmatch(r"([567])(?:\.(\d{1,4})\.(\d{1,5}))?", text):
        major = int(match[1])
        return Release(major, int(match[2]), int(match[3])) if match[2] else NEWEST[major]
    raise UnknownRelease(
        f"{text!r} is not an AI SDK release; give 5, 6 or 7 for the newest of that major, or one such as 6.0.150"
    )


@functools.lru_cache(maxsize=64)
def dialect(sdk: str) -> Dialect:
    """Return the dialect for a server's ``sdk`` setting: ``any``, a major, or one release."""
    if sdk == "any":
        return Dialect(sdk, tuple(Release(major, 0, 0) for major in MAJORS))
    try:
        return Dialect(sdk, (release(sdk),))
    except UnknownRelease as error:
        raise UnknownRelease(f"{error}, or any for what every release accepts") from None
