"""Whole reports: the captures, and what is about a response as a whole."""

import itertools
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.check.streams import INPUT, OUTPUT, START, STEP, STEP_END, found, stream, text, turn
from tests.stream_strategies import body_of
from usechat.check import DEFAULT_SDKS, Capture, Report, check_bytes, check_capture, check_pieces
from usechat.check.report import named_releases
from usechat.errors import UnknownRelease

CAPTURES = Path(__file__).parent.parent / "fixtures" / "captures"
ALL = "5 6 7"

EXPECTED: dict[str, list[tuple[str, int | None, str]]] = {
    # Good ones.
    "plain.sse": [],
    "every-release.sse": [],
    "tool-turn.sse": [],
    "thinking-with-sources.sse": [],
    "client-tool.sse": [],
    "comments-and-crlf.sse": [],
    "approval.sse": [("UC204", 4, "5")],
    "newest-7-only.sse": [("UC204", 3, "5 6"), ("UC204", 4, "5 6"), ("UC204", 7, "5 6"), ("UC204", 11, "5 6")],
    "failed-turn.sse": [("UC401", 6, ALL)],
    # Broken ones.
    "step-start.sse": [("UC203", 2, ALL), ("UC203", 6, ALL)],
    "error-key.sse": [("UC205", 3, ALL)],
    "null-and-wrong-keys.sse": [
        ("UC206", 1, ALL),
        ("UC207", 3, ALL),
        ("UC207", 4, ALL),
        ("UC205", 4, ALL),
        ("UC207", 5, ALL),
        ("UC209", 7, ALL),
        ("UC404", 1, ALL),
    ],
    "tool-without-output.sse": [("UC205", 7, ALL)],
    "text-without-start.sse": [("UC301", 3, ALL)],
    "text-over-a-step.sse": [("UC303", 7, "5 6")],
    "output-without-input.sse": [("UC305", 3, ALL)],
    "dynamic-forgotten.sse": [("UC306", 4, "5")],
    "data-without-data.sse": [("UC205", 2, ALL)],
    "not-a-number.sse": [("UC105", 2, ALL)],
    "prototype.sse": [("UC106", 2, ALL)],
    "one-line-end.sse": [("UC102", 1, ALL)],
    "python-dict.sse": [("UC101", 1, ALL), ("UC101", 2, ALL)],
    "plain-text-events.sse": [("UC101", 1, ALL), ("UC101", 2, ALL)],
    "misspelt-end.sse": [("UC104", 8, ALL)],
    "ag-ui.sse": [("UC009", 1, ALL), ("UC203", 1, ALL), ("UC203", 2, ALL), ("UC203", 3, ALL), ("UC203", 4, ALL)],
    # Those that no client rejects.
    "unknown-keys.sse": [("UC212", 3, ALL), ("UC212", 9, ALL)],
    "cut.sse": [("UC407", None, ALL), ("UC109", None, ALL), ("UC410", 3, ALL)],
    "lost-last-event.sse": [("UC107", None, ALL), ("UC407", None, ALL)],
    "carriage-returns.sse": [("UC108", None, ALL)],
    "text-after-tool.sse": [("UC412", 8, ALL)],
    "text-around-tool.sse": [("UC421", 9, ALL), ("UC413", 10, ALL)],
    "late-start.sse": [("UC405", 3, ALL)],
    "tool-failure-as-error.sse": [("UC401", 7, ALL), ("UC402", 7, ALL)],
    "large-number.sse": [("UC113", 2, ALL)],
    "forgotten-prefix.sse": [("UC111", None, ALL), ("UC407", None, ALL)],
    # Those that are no stream.
    "nothing.sse": [("UC003", None, ALL)],
    "data-stream-of-4.txt": [("UC005", None, ALL)],
    "page.html": [("UC004", None, ALL)],
    "answer.json": [("UC004", None, ALL)],
    "chunks.jsonl": [("UC004", None, ALL)],
}


def check(body: bytes, **options: object) -> Report:
    return check_capture(Capture(name="-", body=body, **options))  # type: ignore[arg-type]


def rules(report: Report) -> list[str]:
    return [problem.rule.id for problem in report.problems]


@pytest.mark.parametrize("name", sorted(path.name for path in CAPTURES.iterdir()))
def test_captures(name: str) -> None:
    report = check_capture(Capture(name=name, body=(CAPTURES / name).read_bytes()))
    assert [(one.rule.id, one.frame, " ".join(one.sdks)) for one in report.problems] == EXPECTED[name]
    has_errors = any(problem.rule.severity == "error" for problem in report.problems)
    assert (report.ok, report.exit_code) == (not has_errors, int(has_errors))


def test_the_report_as_json() -> None:
    body = stream(START, *text(), {"type": "x"})
    assert check_bytes(body, name="a.sse", sdks=["7"]) == {
        "input": "a.sse",
        "ok": False,
        "verdicts": {
            "7": {
                "ok": False,
                "status": "error",
                "error": 'Type validation failed: Value: {"type":"x"}.\n'
                'Error message: no AI SDK release knows the chunk type "x"',
                "message": {
                    "id": "m",
                    "role": "assistant",
                    "parts": [{"type": "text", "text": "Hi", "state": "done"}],
                },
            }
        },
        "problems": [
            {
                "rule": "UC203",
                "severity": "error",
                "frame": 5,
                "chunk": {"type": "x"},
                "sdks": ["7"],
                "text": 'no AI SDK release knows the chunk type "x". The turn ends here: status "error" with a long'
                ' "Type validation failed" text; the rest is not read.',
                "fix": 'Send a type that exists, or data of your own as {"type":"data-<name>","data":…}. No client'
                " skips a chunk.",
            }
        ],
    }


@pytest.mark.parametrize(
    ("sdks", "expected"),
    [
        (DEFAULT_SDKS, ["5.0.277", "6.0.326", "7.0.170"]),
        (["any"], ["5.0.0", "5.0.277", "6.0.0", "6.0.326", "7.0.0", "7.0.170"]),
        (["7", "5.0.1", "7"], ["5.0.1", "7.0.170"]),
    ],
)
def test_the_releases_that_judge(sdks: list[str], expected: list[str]) -> None:
    assert [str(release) for release in named_releases(sdks).values()] == expected


def test_a_release_that_cannot_be() -> None:
    with pytest.raises(UnknownRelease):
        check_bytes(b"", sdks=["4"])


def test_strict_releases_reject_what_loose_ones_ignore() -> None:
    body = turn(*text(), {"type": "start-step", "extra": 1})
    report = check_capture(Capture(name="-", body=body), ["5.0.216", "5"])
    assert [(one.rule.id, one.sdks) for one in report.problems] == [("UC210", ["5.0.216"]), ("UC212", ["5"])]
    assert found(body, "5.0.216") == [("UC210", 5)]


def test_chunks_after_the_end_mark() -> None:
    assert found(stream(START, *text(), {"type": "finish"}, "[DONE]", {"type": "start-step"})) == [
        ("UC112", 7),
        ("UC408", 7),
    ]


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        (b"x\n", "a line begins with no field of an event"),
        (b"x\n" * 50, "a line begins with no field of an event (and so do 49 others)"),
    ],
)
def test_lines_that_no_client_reads(lines: bytes, what: str) -> None:
    [problem] = check(lines + turn(*text())).problems
    assert (problem.rule.id, problem.line, problem.chunk, problem.what) == ("UC111", 1, "x", what)


def test_bytes_that_are_not_utf_8() -> None:
    assert found(turn(*text()).replace(b"Hi", b"\xff")) == [("UC110", None)]


def test_a_body_in_pieces_has_the_report_of_the_whole() -> None:
    for path in CAPTURES.iterdir():
        body = path.read_bytes()
        pieces = [body[index : index + 7] for index in range(0, len(body), 7)]
        assert check_pieces(pieces, name=path.name).to_json() == check_bytes(body, name=path.name)


class TestLargeBodies:
    """The size of what is kept is bounded, and the verdict is that on the whole stream."""

    def pictures(self, *after: Any) -> Iterator[bytes]:
        """Yield a stream of 12 MiB, piece by piece."""
        yield stream(START, INPUT, OUTPUT, *STEP, *text()[:1], done=False)
        picture = {"type": "data-picture", "data": "x" * 1024 * 1024}
        for _ in range(12):
            yield stream(picture, text()[1], done=False)
        yield stream(text()[2], *after, {"type": "finish"})

    def test_the_report_has_the_beginning_of_a_message_that_is_too_large(self) -> None:
        report = check_pieces(self.pictures(), sdks=["5", "7"])
        assert (report.ok, report.frame_count, rules(report)) == (True, 32, [])
        for verdict in report.to_json()["verdicts"].values():
            assert verdict["messageIsShortened"] is True
            types = [part["type"] for part in verdict["message"]["parts"]]
            assert types == ["tool-search", "step-start", "text", *["data-picture"] * 4]
        assert report.verdicts["5"].message is report.verdicts["7"].message

    def test_blocks_and_calls_are_known_to_the_end(self) -> None:
        report = check_pieces(self.pictures(OUTPUT, {**OUTPUT, "toolCallId": "d"}, text()[1]), sdks=["7"])
        assert [(one.rule.id, one.frame) for one in report.problems] == [("UC305", 32), ("UC302", 33), ("UC417", 31)]
        assert report.verdicts["7"].error == 'No tool invocation found for tool call ID "d".'
        assert report.verdicts["7"].is_shortened

    def test_a_message_that_is_not_too_large_is_whole(self) -> None:
        body = turn(*[{"type": "data-x", "data": "x" * 1024 * 1024}] * 3)
        [verdict] = check_bytes(body, sdks=["7"])["verdicts"].values()
        assert list(verdict) == ["ok", "status", "error", "message"]
        assert len(verdict["message"]["parts"]) == 3

    def test_many_values_make_a_message_too_large_before_their_text_does(self) -> None:
        body = turn(*[{"type": "data-x", "data": [{}] * 25_000}] * 4)
        assert len(body) < 500_000
        [verdict] = check_bytes(body, sdks=["7"])["verdicts"].values()
        assert verdict["messageIsShortened"] is True

    def test_a_long_text_in_short_deltas_is_too_large_as_well(self) -> None:
        deltas = stream(text(delta="x" * 10_000)[1], done=False) * 100
        pieces = itertools.chain([stream(START, text()[0], done=False)], [deltas] * 6, [stream(text()[2])])
        report = check_pieces(pieces, sdks=["7"])
        [part] = report.verdicts["7"].message["parts"]
        assert (report.verdicts["7"].is_shortened, part["state"]) == (True, "streaming")
        assert 4_000_000 < len(part["text"]) < 6_000_000

    def test_memory_does_not_grow_with_the_body(self) -> None:
        def peak(steps: int) -> int:
            one = [
                *STEP,
                INPUT,
                OUTPUT | {"output": "x" * 100_000},
                *STEP_END,
                *STEP,
                *text(delta="x" * 9_000),
                *STEP_END,
            ]
            body = stream(*one, done=False)
            tracemalloc.start()
            report = check_pieces(itertools.chain([stream(START, done=False)], [body] * steps), sdks=["7"])
            size = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert report.verdicts["7"].ok
            return size

        assert peak(200) < 1.2 * peak(100)


class TestResponses:
    def test_a_failure(self) -> None:
        report = check(b"over capacity", status=503)
        assert (rules(report), report.ok, report.exit_code) == (["UC001"], False, 1)
        assert {verdict.error for verdict in report.verdicts.values()} == {"over capacity"}
        assert report.problems[0].chunk == "over capacity"

    def test_a_failure_without_a_text(self) -> None:
        errors = {name: verdict.error for name, verdict in check(b"", status=500).verdicts.items()}
        assert errors == {"5": "", "6": "", "7": "Failed to fetch the chat response."}

    def test_no_content(self) -> None:
        report = check(b"", status=204)
        assert rules(report) == ["UC002"]
        assert report.verdicts["7"].error == "The response body is empty."

    def test_headers_and_pace(self) -> None:
        body = turn(*text(), *text("u"), *text("v"))
        missing = ["UC010", "UC011", "UC012", "UC013"]
        at_once, bit_by_bit = ((2.0, len(body)),), ((2.0, 100), (4.0, len(body)))
        assert rules(check(body, headers={}, arrivals=at_once)) == [*missing, "UC015"]
        assert rules(check(body, headers={}, arrivals=bit_by_bit)) == missing

    def test_what_is_no_chunk_does_not_count_for_the_pace(self) -> None:
        body = b": stream-open\n\n" + turn(*text(), *text("u"), *text("v"))
        arrivals = ((0.0, 15), (2.0, len(body) - 14), (4.0, len(body)))
        assert "UC015" in rules(check(body, headers={}, arrivals=arrivals))

    def test_a_broken_connection(self) -> None:
        report = check(stream(START, *text()[:2], done=False) + b"data: {", is_broken=True)
        assert (rules(report), report.exit_code) == (["UC006"], 1)
        assert (report.verdicts["7"].status, report.verdicts["7"].error) == ("error", "network error")

    def test_a_body_that_is_not_what_its_encoding_says(self) -> None:
        report = check(b"", has_false_encoding=True, headers={"content-encoding": "gzip"})
        assert (rules(report)[0], report.exit_code) == ("UC008", 1)
        assert report.problems[0].what == "the header says `content-encoding: gzip`, and the body is not gzip"
        assert (report.verdicts["7"].status, report.verdicts["7"].error) == ("error", "network error")

    def test_a_stream_that_was_not_read_to_its_end(self) -> None:
        report = check(stream(START, *text()[:2], done=False) + b"data: {", unread="after 1 s")
        assert (rules(report), report.ok, report.exit_code) == (["UC007"], False, 2)
        assert report.verdicts["7"].ok

    def test_nothing_came_before_reading_stopped(self) -> None:
        assert check(b"", unread="after 1 s").exit_code == 2

    def test_a_rejection_before_reading_stopped_is_final(self) -> None:
        assert check(stream({"type": "x"}, done=False), unread="after 1 s").exit_code == 1


NATIVE_APPROVAL = [
    {"type": "start", "messageId": "m"},
    {"type": "start-step"},
    {"type": "tool-input-available", "toolCallId": "c1", "toolName": "t", "input": {}},
    {"type": "tool-approval-request", "approvalId": "a1", "toolCallId": "c1"},
    {"type": "finish-step"},
    {"type": "finish"},
]


def test_an_approval_is_a_note_about_5_for_any() -> None:
    report = check_bytes(body_of(NATIVE_APPROVAL), sdks=["any"])
    assert report["ok"]
    assert list(report["verdicts"]) == ["6.0.0", "6.0.326", "7.0.0", "7.0.170"]
    [note] = [problem for problem in report["problems"] if problem["rule"] == "UC426"]
    assert (note["severity"], note["frame"], note["sdks"]) == ("note", 4, ["5.0.0", "5.0.277"])
    assert not [problem for problem in report["problems"] if problem["severity"] == "error"]


@pytest.mark.parametrize("sdks", [["5"], ["any", "5"], ["any", "5.0.0"]])
def test_an_approval_is_an_error_for_5(sdks: list[str]) -> None:
    report = check_bytes(body_of(NATIVE_APPROVAL), sdks=sdks)
    assert not report["ok"]
    assert [problem["rule"] for problem in report["problems"] if problem["severity"] == "error"] == ["UC204"]
