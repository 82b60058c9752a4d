"""The report as a program reads it."""

import json
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.check.streams import START, stream, text, turn
from usechat.check import RULES, Capture, check_capture
from usechat.check.machine_formats import json_report, junit_report, sarif_report

GOOD = check_capture(Capture(name="captures/good one.sse", body=turn(*text())))
BAD = check_capture(
    Capture(name="-", body=stream(START, {"type": "tool-output-denied", "toolCallId": "\x00\ud800"}, *text()))
)


def results(*reports: Any) -> list[Any]:
    [run] = json.loads(sarif_report(reports, version="1.2.3"))["runs"]
    found: list[Any] = run["results"]
    return found


def test_json_is_one_line() -> None:
    assert json_report(BAD).count("\n") == 1
    assert json.loads(json_report(BAD)) == BAD.to_json()


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


def test_junit_has_a_case_for_each_release() -> None:
    root = ElementTree.fromstring(junit_report([GOOD, BAD]))
    suites = [(suite.get("name"), suite.get("tests"), suite.get("failures")) for suite in root]
    assert suites == [("captures/good one.sse", "3", "0"), ("-", "3", "3")]
    five, six, _ = root[1]
    assert [case.get("name") for case in root[1]] == ["AI SDK 5", "AI SDK 6", "AI SDK 7"]
    assert (five[0].get("message") or "").startswith("Type validation failed")
    assert (five[0].text or "").startswith("UC204 at frame 2: ")
    assert (six[0].get("message") or "").startswith("No tool invocation found for tool call ID")
    assert (six[1].text or "").startswith("UC407: the stream ends without")


def test_junit_of_a_body_without_a_stream() -> None:
    root = ElementTree.fromstring(junit_report([check_capture(Capture(name="-", body=b""), ["7"])]))
    assert [failure.get("message") for failure in root.iter("failure")] == ["nothing was read"]
