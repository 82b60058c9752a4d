"""The report as a program reads it."""

import json
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.check.streams import INPUT, START, stream, text, turn
from usechat.check import RULES, Capture, check_capture
from usechat.check.formats import github_report, json_report, junit_report, sarif_report
from usechat.check.report import Unjudged

GOOD = check_capture(Capture(name="captures/good one.sse", body=turn(*text())))
BAD = check_capture(
    Capture(name="-", body=stream(START, {"type": "tool-output-denied", "toolCallId": "\x00\ud800"}, *text()))
)
UNREAD = check_capture(Capture(name="long.sse", body=turn(*text()), unread="only the first 9 bytes were read"), ["7"])
UNJUDGED = Unjudged("no file", "no file cannot be read: \x00")


def results(*reports: Any) -> list[Any]:
    [run] = json.loads(sarif_report(reports, version="1.2.3"))["runs"]
    items: list[Any] = run["results"]
    return items


def test_json_is_one_line() -> None:
    assert json_report(BAD).count("\n") == 1
    assert json.loads(json_report(BAD)) == BAD.to_json()


def test_json_of_what_could_not_be_judged_has_the_keys_of_a_report() -> None:
    expected = {"input": "no file", "ok": False, "verdicts": {}, "problems": [], "error": UNJUDGED.reason}
    assert json.loads(json_report(UNJUDGED)) == expected


def test_sarif_has_the_tool_and_its_rules() -> None:
    log = json.loads(sarif_report([], version="1.2.3"))
    driver = log["runs"][0]["tool"]["driver"]
    assert (log["version"], driver["name"], driver["version"]) == ("2.1.0", "usechat check", "1.2.3")
    assert [rule["id"] for rule in driver["rules"]] == list(RULES)


def test_sarif_has_a_result_for_each_problem() -> None:
    rejected, *_ = results(GOOD, BAD)
    assert (rejected["ruleId"], rejected["level"], rejected["ruleIndex"]) == (
        "UC204",
        "error",
        list(RULES).index("UC204"),
    )
    assert rejected["locations"] == [
        {
            "physicalLocation": {"artifactLocation": {"uri": "stdin"}, "region": {"startLine": 3}},
            "logicalLocations": [{"name": "frame 2", "kind": "element"}],
        }
    ]
    assert rejected["properties"] == {"sdks": ["5"], "frame": 2}


@pytest.mark.parametrize(
    ("name", "uri"),
    [("a b/c.sse", "a%20b/c.sse"), ("https://a.example/chat?x=1", "https://a.example/chat?x=1"), ("-", "stdin")],
)
def test_sarif_names_the_input(name: str, uri: str) -> None:
    [result] = results(check_capture(Capture(name=name, body=b"")))
    assert result["locations"] == [{"physicalLocation": {"artifactLocation": {"uri": uri}}}]


def test_sarif_reports_what_could_not_be_judged() -> None:
    [run] = json.loads(sarif_report([GOOD, UNJUDGED], version="1.2.3"))["runs"]
    location = {"physicalLocation": {"artifactLocation": {"uri": "no%20file"}}}
    notification = {"level": "error", "message": {"text": UNJUDGED.reason}, "locations": [location]}
    assert run["invocations"] == [{"executionSuccessful": False, "toolExecutionNotifications": [notification]}]
    assert run["results"] == []


def test_sarif_reports_success() -> None:
    [run] = json.loads(sarif_report([BAD], version="1.2.3"))["runs"]
    assert run["invocations"] == [{"executionSuccessful": True, "toolExecutionNotifications": []}]


def counts(root: ElementTree.Element) -> list[tuple[str | None, ...]]:
    return [tuple(suite.get(name) for name in ("name", "tests", "failures", "errors")) for suite in root]


def test_junit_has_a_case_for_each_release() -> None:
    root = ElementTree.fromstring(junit_report([GOOD, BAD]))
    assert counts(root) == [("captures/good one.sse", "3", "0", "0"), ("-", "3", "3", "0")]
    five, six, _ = root[1]
    assert [case.get("name") for case in root[1]] == ["AI SDK 5", "AI SDK 6", "AI SDK 7"]
    assert (five[0].get("message") or "").startswith("Type validation failed")
    assert (five[0].text or "").startswith("UC204 at frame 2: ")
    assert (six[0].get("message") or "").startswith("No tool invocation found for tool call ID")
    assert (six[1].text or "").startswith("UC407: the stream ends without")


def test_junit_of_a_body_without_a_stream() -> None:
    root = ElementTree.fromstring(junit_report([check_capture(Capture(name="-", body=b""), ["7"])]))
    assert [failure.get("message") for failure in root.iter("failure")] == ["nothing was read"]


def test_junit_reports_what_could_not_be_judged() -> None:
    root = ElementTree.fromstring(junit_report([UNJUDGED, UNREAD]))
    assert counts(root) == [("no file", "1", "0", "1"), ("long.sse", "1", "0", "1")]
    assert [(error.get("type"), error.get("message")) for error in root.iter("error")] == [
        ("not judged", "no file cannot be read: \ufffd"),
        ("not judged", "the stream was not read to its end"),
    ]


def test_github_has_an_annotation_for_each_problem() -> None:
    report = check_capture(Capture(name="a,b:c%.sse", body=b"x\n" + stream(START, {"type": "x"})), ["7"])
    unknown, ignored, last = github_report(report).splitlines()
    assert unknown == (
        "::error file=a%2Cb%3Ac%25.sse,line=4,title=UC203 No release knows the chunk type"
        '::frame 2: no AI SDK release knows the chunk type "x". The turn ends here: status "error" with a long "Type'
        ' validation failed" text; the rest is not read. Send a type that exists, or data of your own as'
        ' {"type":"data-<name>","data":…}. No client skips a chunk.'
    )
    assert ignored.startswith("::warning file=a%2Cb%3Ac%25.sse,line=1,title=UC111 A line belongs to no event::a line")
    assert last == "a,b:c%.sse: rejected. AI SDK 7 rejects this stream."


def test_github_calls_a_note_a_notice() -> None:
    approval = {"type": "tool-approval-request", "approvalId": "a", "toolCallId": "c"}
    report = check_capture(Capture(name="a.sse", body=turn(INPUT, approval)), ["any"])
    note, _ = github_report(report).splitlines()
    assert note.startswith("::notice file=a.sse,line=5,title=UC426 AI SDK 5 has no approvals::frame 3: ")


def test_github_has_the_outcome_of_a_good_stream() -> None:
    assert github_report(GOOD) == "captures/good one.sse: accepted. AI SDK 5, 6 and 7 accept this stream.\n"


@pytest.mark.parametrize("name", ["-", "https://a.example/chat"])
def test_github_shows_no_file_where_there_is_none(name: str) -> None:
    [annotation, _] = github_report(check_capture(Capture(name=name, body=b""), ["7"])).splitlines()
    assert annotation.startswith(f"::error title=UC003 The stream is empty::{name}: the body is empty. ")


def test_github_reports_what_could_not_be_judged() -> None:
    unjudged = Unjudged("no file", "no file cannot be read:\nreally")
    assert github_report(unjudged) == "::error file=no file,title=usechat check::no file cannot be read:%0Areally\n"
