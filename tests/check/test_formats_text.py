"""The report as a person reads it."""

import re
from typing import Any

import pytest

from tests.check.streams import INPUT, OUTPUT, START, STEP, STEP_END, stream, text, turn
from usechat.check import Capture, Report, Verdict, check_capture
from usechat.check.formats import text_report


def report(body: bytes, *sdks: str, width: int = 100, colour: bool = False, **options: Any) -> str:
    capture = Capture(name="a.sse", body=body, **options)
    return text_report(check_capture(capture, sdks or ("5", "6", "7")), width=width, colour=colour)


def test_a_good_stream() -> None:
    assert report(turn(*text())) == (
        "a.sse: accepted\n"
        "AI SDK 5, 6 and 7 accept this stream. (6 frames)\n"
        "\n"
        "What the page shows\n"
        '  AI SDK 5, 6, 7: status "ready", message "m" of 1 part\n'
        '    text (done) "Hi"\n'
    )


def test_a_continued_message_may_have_a_text_without_a_state() -> None:
    continued: Any = {"id": "m", "role": "assistant", "parts": [{"type": "text", "text": "Well."}]}
    assert report(turn(*text()), continues=continued).endswith('    text (no state) "Well."\n    text (done) "Hi"\n')


def test_a_stream_that_some_reject() -> None:
    approval = {"type": "tool-approval-request", "approvalId": "a", "toolCallId": "c"}
    assert report(turn(INPUT, approval)) == (
        "a.sse: rejected\n"
        "AI SDK 5 rejects this stream; 6 and 7 accept it. (1 error, 5 frames)\n"
        "\n"
        'error UC204 at frame 3, line 5: the chunk type "tool-approval-request" came with AI SDK 6.0.0 and\n'
        "    7.0.0\n"
        '    chunk   {"type":"tool-approval-request","approvalId":"a","toolCallId":"c"}\n'
        "    breaks  AI SDK 5\n"
        '    effect  The turn ends here: status "error" with a long "Type validation failed" text; the rest\n'
        "            is not read.\n"
        "    fix     Ask with a tool that the page runs, as `--sdk 5` does: AI SDK 5 has no approvals.\n"
        "\n"
        "What the page shows\n"
        '  AI SDK 5: status "error", message "m" of 1 part\n'
        "    error text: Type validation failed: Value:\n"
        '        {"type":"tool-approval-request","approvalId":"a","toolCallId":"c"}.\n'
        '    tool-search (input-available) "c" input {}\n'
        '  AI SDK 6, 7: status "ready", message "m" of 1 part\n'
        '    tool-search (approval-requested) "c" input {}\n'
    )


def test_warnings() -> None:
    page = report(stream(START, *text(), {"type": "finish", "x": 1}, {"type": "finish", "x": 1}), "5", "5.0.216")
    assert page.startswith(
        "a.sse: rejected\nAI SDK 5.0.216 rejects this stream; 5 accepts it. (1 error, 2 warnings, 7 fra"
    )
    assert "error UC210 at frame 5, line 9: \"finish\": the key 'x' is unknown (and in 1 more frame)\n" in page
    assert "    in      AI SDK 5\n    effect  Nothing of its value" in page


def test_notes_are_neither_errors_nor_warnings() -> None:
    approval = {"type": "tool-approval-request", "approvalId": "a", "toolCallId": "c"}
    lines = report(turn(INPUT, approval), "any").splitlines()
    assert lines[1].endswith(" accept this stream. (1 note, 5 frames)")
    assert lines[3].startswith("note UC426 at frame 3, line 5: ")


def test_a_repeated_effect_is_described_once() -> None:
    page = report(stream({"type": "x"}, {"type": "y"}))
    assert re.findall(r"effect .*", page) == [
        'effect  The turn ends here: status "error" with a long "Type validation failed" text; the rest',
        "effect  As above.",
    ]


@pytest.mark.parametrize(
    ("body", "options", "start"),
    [
        (b"", {}, "a.sse: no answer\nAI SDK 5, 6 and 7 find nothing to read in it. (1 error)\n"),
        (b"", {"status": 500}, "a.sse: rejected\nAI SDK 5, 6 and 7 reject this stream. (1 error)\n"),
        (
            b"",
            {"unread": "late"},
            "a.sse: not judged\nAI SDK 5, 6 and 7 accept what was read, which is not all. (1 error)\n",
        ),
    ],
)
def test_headlines(body: bytes, options: dict[str, Any], start: str) -> None:
    assert report(body, **options).startswith(start)


def test_what_was_not_read_breaks_nothing() -> None:
    page = report(stream(START, done=False), unread="only the first 9 bytes were read")
    assert "error UC007: only the first 9 bytes were read\n    effect  What came so far" in page


def test_a_problem_with_a_line_of_the_file() -> None:
    page = report(turn(*text()) + b"nonsense\n\n")
    assert "warning UC111 at line 13: a line begins with no field of an event\n    chunk   nonsense\n" in page


def test_parts_of_every_kind() -> None:
    body = turn(
        *STEP,
        *text("r", kind="reasoning"),
        {"type": "file", "url": "data:,x", "mediaType": "text/plain"},
        {"type": "source-url", "sourceId": "s", "url": "u"},
        INPUT | {"dynamic": True},
        OUTPUT | {"dynamic": True},
        *STEP_END,
        *STEP,
    )
    assert report(body, "7").split("of 5 parts\n")[1] == (
        "    step-start\n"
        '    reasoning (done) "Hi"\n'
        "    file (text/plain) data:,x\n"
        '    source-url {"sourceId":"s","url":"u"}\n'
        '    dynamic-tool search (output-available) "c" input {} output 1\n'
    )


def test_long_messages_and_chunks_are_cut() -> None:
    page = report(turn(*[chunk for number in range(25) for chunk in text(str(number), "x" * 200)]), width=60)
    assert f'    text (done) "{"x" * 42}…\n' in page
    assert page.endswith("    … and 5 more parts\n")
    page = report(stream({"type": "x", "data": "y" * 500}), width=60)
    assert max(map(len, page.splitlines())) <= 60


def test_what_a_terminal_might_obey_is_escaped() -> None:
    evil = "\x1b[2J\u202e\x85"
    page = report(stream(START, *text("t", evil), {"type": "error", "errorText": evil}, done=False) + b"\x1b[0m\n\n")
    assert all(character.isprintable() or character == "\n" for character in page)


def test_colour_says_nothing_that_the_words_do_not() -> None:
    body = stream({"type": "x"}, *text())
    coloured = report(body, colour=True)
    assert "\x1b[1;31merror\x1b[0m UC203" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == report(body)


def test_a_message_that_is_too_large_to_be_kept() -> None:
    parts = [{"type": "step-start"}] * 25
    verdict = Verdict(True, "ready", None, {"id": "m", "role": "assistant", "parts": parts}, is_shortened=True)
    page = text_report(Report("-", {"7": verdict}, [], 1, is_whole=True))
    assert 'AI SDK 7: status "ready", message "m" of at least 25 parts\n' in page
    assert page.endswith("    … and at least 5 more parts\n")
