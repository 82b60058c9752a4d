"""Check a whole response: the verdict of each release, and every problem."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

import msgspec

from usechat.check.deltas import DeltaRun, text_of
from usechat.check.frames import Body, Frame, JsonReader, Place, shortened
from usechat.check.hints import fix_for_unknown_key
from usechat.check.order import Order
from usechat.check.other_formats import nothing_read, other_protocol
from usechat.check.problems import Finding, Problem, Problems
from usechat.check.response import Capture, body_findings, header_findings, pace_findings, refused
from usechat.check.verdict import ReleaseJudge, Verdict, repaired_chunk
from usechat.errors import UnknownRelease
from usechat.protocol.chunks import CHUNK_TYPES, type_of
from usechat.protocol.releases import APPROVALS, CHUNKS, MAJORS, NEWEST, Release, Since, release
from usechat.protocol.schema import flaws, is_strict
from usechat.protocol.sse import END_MARK
from usechat.protocol.values import json_text

__all__ = ["DEFAULT_SDKS", "Report", "Unjudged", "check_bytes", "check_capture", "check_pieces", "named_releases"]

DEFAULT_SDKS: Final = tuple(str(major) for major in MAJORS)
"""The newest release of each major."""
_DATA_KEYS: Final = frozenset({"type", "data", "id", "transient"})
_KNOWN_KEYS: Final = {
    name: frozenset({"type", *struct.__struct_encode_fields__}) for name, struct in CHUNK_TYPES.items()
}
"""The keys of each chunk type that some release reads."""
_NEWEST: Final = NEWEST[MAJORS[-1]]
_HAS_APPROVALS: Final = CHUNKS["tool-approval-request"].since
_MAXIMUM_MESSAGE_SIZE: Final = 4 * 1024 * 1024
"""Bytes: how large a message may grow before only its beginning is kept."""
_SIZE_OF_VALUE: Final = 64
"""Bytes that count for one value, on top of its text, in a chunk with unusually many: objects take more than texts."""
_NAMES_FAILURES: Final = Since(None, None, 100)
"""The clients that have a default text for a failure without a body."""


class Report(msgspec.Struct, frozen=True):
    """The result of a check: a verdict per release, and the problems.

    ``name`` is the input, ``verdicts`` are by release, ``frame_count`` is how many events the stream has, and
    ``is_whole`` says whether it was read to its end.

    >>> report = check_capture(Capture(name="empty", body=b""), ["7"])
    >>> report.ok, report.exit_code, [problem.rule.id for problem in report.problems]
    (False, 1, ['UC003'])
    """

    name: str
    verdicts: Mapping[str, Verdict]
    problems: Sequence[Problem]
    frame_count: int
    is_whole: bool

    @property
    def ok(self) -> bool:
        """Whether every release accepts the whole stream."""
        return self.is_whole and all(verdict.ok for verdict in self.verdicts.values())

    @property
    def exit_code(self) -> int:
        """The exit code of `usechat check`: 0 if every release accepts the stream, 1 if not, 2 if it was cut."""
        if any(not verdict.ok for verdict in self.verdicts.values()):
            return 1
        return 0 if self.is_whole else 2

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            "input": self.name,
            "ok": self.ok,
            "verdicts": {name: verdict.to_json() for name, verdict in self.verdicts.items()},
            "problems": [problem.to_json() for problem in self.problems],
        }


class Unjudged(msgspec.Struct, frozen=True):
    """An input that could not be checked, and why."""

    name: str
    reason: str
    exit_code: ClassVar = 2

    def to_json(self) -> dict[str, Any]:
        """Return the keys of a report, and the reason as ``error``."""
        return {"input": self.name, "ok": False, "verdicts": {}, "problems": [], "error": self.reason}


def check_bytes(body: bytes, *, name: str = "-", sdks: Iterable[str] = DEFAULT_SDKS) -> dict[str, Any]:
    """Check the body of a response and return the report as JSON values.

    ``name`` stands in the report as its input. ``sdks`` are AI SDK releases such as ``"5"``, ``"6.0.230"`` or ``"any"``
    (the first and the newest of each major). Raises :class:`~usechat.errors.CannotJudge` if the body is too large or
    too deeply nested to check, and :class:`~usechat.errors.UnknownRelease`.

    >>> report = check_bytes(b'data: {"type":"start","messageId":"m"}\\n\\ndata: {"type":"ping"}\\n\\n', sdks=["6"])
    >>> report["verdicts"]["6"]["ok"]
    False
    >>> problem = report["problems"][0]
    >>> problem["rule"], problem["frame"], problem["fix"].partition(":")[0]
    ('UC203', 2, 'To keep the connection alive send a comment instead of a chunk')
    """
    return check_capture(Capture(name=name, body=body), sdks).to_json()


def _only_of_any(sdks: Sequence[str]) -> set[str]:
    """Return the names of releases that are judged because of `any` alone."""
    return set(named_releases(sdks)) - set(sdks) if "any" in sdks else set()


def named_releases(sdks: Iterable[str]) -> dict[str, Release]:
    """Return the releases by their names; `any` stands for the first and the newest release of each major.

    What these six accept, every release accepts: the first release of a major knows the fewest chunks and keys, and
    what a major has dropped is missing in its newest release.
    """
    names: list[str] = []
    for sdk in sdks:
        names += (
            [f"{major}.0.0" for major in MAJORS] + [str(NEWEST[major]) for major in MAJORS] if sdk == "any" else [sdk]
        )
    try:
        return {name: release(name) for name in sorted(names, key=release)}
    except UnknownRelease as error:
        raise UnknownRelease(f"{error}, or any for all of them") from None


def check_capture(capture: Capture, sdks: Iterable[str] = DEFAULT_SDKS) -> Report:
    """Check a response, with its status, headers and timing as far as they are known. ``sdks`` are AI SDK releases.

    Raises :class:`~usechat.errors.CannotJudge` if the body is too large or too deeply nested to check, and
    :class:`~usechat.errors.UnknownRelease`.

    >>> report = check_capture(Capture(name="a", body=b"Not found", status=404), ["5", "7"])
    >>> [problem.rule.title for problem in report.problems], report.verdicts["7"].error
    (['The server answers with a failure'], 'Not found')
    """
    sdks = tuple(sdks)
    releases = named_releases(sdks)
    finding = refused(capture)
    if finding is None:
        return _Check(capture, sdks).report([capture.body])
    problems = Problems()
    problems.add(finding, releases, Place(chunk=capture.body[:2_000].decode("utf-8", "replace") or None))
    verdicts = {name: Verdict(False, "error", _failure(capture, candidate)) for name, candidate in releases.items()}
    return Report(capture.name, verdicts, problems.sorted(), 0, is_whole=True)


def check_pieces(pieces: Iterable[bytes], *, name: str = "-", sdks: Iterable[str] = DEFAULT_SDKS) -> Report:
    """Check a body that comes in pieces, of any size and cut anywhere: a file, say, that is larger than the memory.

    ``name`` and ``sdks`` are those of :func:`check_bytes`. The body is read once. What is kept of it does not grow with
    it: of a message of more than 4 MiB the beginning, and of each tool call what identifies it. Raises what
    :func:`check_capture` raises.

    >>> check_pieces([b'data: {"type":"start","mess', b'ageId":"m"}\\n\\n'], sdks=["7"]).frame_count
    1
    """
    return _Check(Capture(name=name, body=b""), tuple(sdks)).report(pieces)


def _failure(capture: Capture, candidate: Release) -> str:
    """Return the error text that a client shows for a response that is no success."""
    if 200 <= capture.status < 300:
        return "The response body is empty."
    text = capture.body.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
    return text or ("Failed to fetch the chat response." if _NAMES_FAILURES.includes(candidate) else "")


class _Check:
    """Reads one response for several releases at once."""

    def __init__(self, capture: Capture, sdks: Sequence[str]) -> None:
        releases = named_releases(sdks)
        only_of_any = _only_of_any(sdks)
        self._capture = capture
        self._names = list(releases)
        self._without_approvals = [name for name in only_of_any if not _HAS_APPROVALS.includes(releases[name])]
        self._loose = [name for name, candidate in releases.items() if not is_strict(candidate)]
        self._judges = {name: ReleaseJudge(candidate, capture.continues) for name, candidate in releases.items()}
        self._order = Order()
        self._problems = Problems()
        self._finding_count = 0
        self._reader = JsonReader()
        self._run = DeltaRun()
        self._message_size = 0
        self._has_gap = False
        self._done: int | None = None
        self._chunk_count = 0
        self._first_end = self._last_end = 0
        self._frame_count = 0

    def report(self, pieces: Iterable[bytes]) -> Report:
        body = Body(pieces)
        for event in body.events():
            self._frame_count += 1
            if event.text == END_MARK:
                self._done = self._done or event.number
                continue
            self._chunk_count += 1
            self._first_end = self._first_end or event.end
            self._last_end = event.end
            if not self._run.continues(event.text):
                self._end_run()
                self._receive(self._reader.frame(event))
        self._end_run()
        capture = self._capture
        is_whole = not (capture.unread or capture.is_broken or capture.has_false_encoding)
        self._end(body, is_whole=is_whole)
        verdicts = {name: judge.verdict(is_whole=is_whole) for name, judge in self._judges.items()}
        problems = self._problems.sorted()
        for problem in problems:
            problem.sdks.sort(key=self._names.index)
        return Report(capture.name, verdicts, problems, self._frame_count, is_whole=not capture.unread)

    def _receive(self, frame: Frame) -> None:
        findings_before = self._finding_count
        if self._done is not None:
            self._add(Finding("UC112", "", f"a chunk comes after the end mark of frame {self._done}"), frame)
        if frame.has_rounded_number:
            as_written = Place(frame.number, frame.line, shortened(frame.text))
            self._add(Finding("UC113", "", "an integer is too large for JavaScript"), as_written)
        chunk_flaws = [] if frame.unreadable else flaws(frame.value, _NEWEST)
        protocol = other_protocol(frame.value) if chunk_flaws else None
        if protocol:
            self._add(protocol, frame)
        chunk = None if frame.unreadable else repaired_chunk(frame.value, chunk_flaws, _NEWEST)
        if chunk is not None and type_of(chunk) in APPROVALS:
            self._leave_out_releases_without_approvals(frame)
        for name, judge in self._judges.items():
            for finding in judge.receive(frame, self._order, None if chunk_flaws else chunk):
                if not (protocol and finding.rule == "UC202"):  # an event of another protocol needs no type of ours
                    self._add(finding, frame, [name])
        self._keep(len(frame.text) + _SIZE_OF_VALUE * frame.value_count)
        if chunk is None:
            self._has_gap = True
            return
        for finding in _unread_keys(frame.value) if self._loose else ():
            self._add(finding, frame, self._loose)
        for finding, place in self._order.receive(chunk, frame):
            self._add(finding, place)
        if self._finding_count == findings_before:
            self._run.begin(frame.text, chunk)

    def _end_run(self) -> None:
        delta = self._run.end()
        if delta is not None:
            for judge in self._judges.values():
                judge.go_on(delta, self._order)
            self._keep(len(text_of(delta)))

    def _keep(self, size: int) -> None:
        """Count what the messages have grown by, and cut them when they are too large."""
        self._message_size += size
        if self._message_size > _MAXIMUM_MESSAGE_SIZE:
            self._message_size = 0
            messages: list[Any] = []
            for judge in self._judges.values():
                judge.forget(messages)

    def _leave_out_releases_without_approvals(self, frame: Frame) -> None:
        """Judge no more for AI SDK 5 if it is judged because of `any`, which makes this one exception."""
        if self._without_approvals:
            what = f"{json_text(frame.value['type'])} is unknown to AI SDK 5"
            self._add(Finding("UC426", "", what), frame, self._without_approvals)
        for name in self._without_approvals:
            del self._judges[name]
        self._without_approvals = []

    def _end(self, body: Body, *, is_whole: bool) -> None:
        capture = self._capture
        if self._chunk_count == 0 and is_whole and not body.lost:
            self._add(nothing_read(body.head))
        else:
            for finding, line in body_findings(body, is_whole=is_whole):
                self._add(finding, line)
        if capture.headers is not None:
            pace = pace_findings(capture.arrivals, self._chunk_count, self._first_end, self._last_end)
            for finding in (*header_findings(capture.headers), *pace):
                self._add(finding)
        if is_whole and not self._has_gap:
            self._end_chunks()
            if self._chunk_count and self._done is None and not body.lost:
                self._add(Finding("UC109", "", "the stream has no [DONE]"))
        if failure := _transport_failure(capture):
            self._add(failure)
            for judge in self._judges.values():
                judge.cut("network error")
        if capture.unread:
            self._add(Finding("UC007", "", capture.unread))

    def _end_chunks(self) -> None:
        for finding, place in self._order.end():
            self._add(finding, place)
        for name, judge in self._judges.items():
            for finding, place in judge.end(self._order):
                self._add(finding, place, [name])

    def _add(self, finding: Finding, where: Frame | Place | None = None, names: Iterable[str] | None = None) -> None:
        self._finding_count += 1
        self._problems.add(finding, self._names if names is None else names, where)


def _transport_failure(capture: Capture) -> Finding | None:
    """Return why clients cannot read to the end; to them both reasons look the same."""
    if capture.has_false_encoding:
        encoding = (capture.headers or {}).get("content-encoding", "")
        return Finding("UC008", "", f"the header says `content-encoding: {encoding}`, and the body is not {encoding}")
    return Finding("UC006", "", "the connection breaks before the end of the stream") if capture.is_broken else None


def _unread_keys(value: dict[str, Any]) -> list[Finding]:
    """Return the keys of a chunk that no release reads."""
    chunk_type = value["type"]
    keys = _KNOWN_KEYS.get(chunk_type, _DATA_KEYS)
    return [
        Finding(
            "UC212", key, f"{json_text(chunk_type)}: no release reads the key '{key}'", fix_for_unknown_key(value, key)
        )
        for key in value
        if key not in keys
    ]
