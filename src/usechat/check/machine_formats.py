"""The report for programs: JSON, SARIF 2.1.0 for code scanning, JUnit XML for test dashboards."""

import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any, Final
from urllib.parse import quote
from xml.etree import ElementTree

from usechat.check.problems import Problem
from usechat.check.report import Report, Unjudged
from usechat.check.rules import RULES
from usechat.values import json_text

__all__ = ["json_report", "junit_report", "sarif_report"]

_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_NOT_IN_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def json_report(report: Report | Unjudged) -> str:
    """Return one line of JSON."""
    return json_text(report.to_json()) + "\n"


def sarif_report(reports: Sequence[Report | Unjudged], *, version: str) -> str:
    """Return one SARIF log with the problems of all reports; what could not be judged is a notification."""
    driver = {
        "name": "usechat check",
        "version": version,
        "rules": [
            {
                "id": rule.id,
                "shortDescription": {"text": rule.title},
                "fullDescription": {"text": rule.sees},
                "help": {"text": rule.fix},
                "defaultConfiguration": {"level": rule.severity},
            }
            for rule in RULES.values()
        ],
    }
    judged = [report for report in reports if isinstance(report, Report)]
    results = [_result(report, problem) for report in judged for problem in report.problems]
    notifications = [_notification(report) for report in reports if isinstance(report, Unjudged)]
    invocation = {"executionSuccessful": not notifications, "toolExecutionNotifications": notifications}
    run = {"tool": {"driver": driver}, "invocations": [invocation], "results": results}
    return json_text({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}) + "\n"


def _notification(report: Unjudged) -> dict[str, Any]:
    location = {"physicalLocation": {"artifactLocation": {"uri": _uri(report.name)}}}
    return {"level": "error", "message": {"text": report.reason}, "locations": [location]}


def _result(report: Report, problem: Problem) -> dict[str, Any]:
    location: dict[str, Any] = {"physicalLocation": {"artifactLocation": {"uri": _uri(report.name)}}}
    if problem.line is not None:
        location["physicalLocation"]["region"] = {"startLine": problem.line}
    if problem.frame is not None:
        location["logicalLocations"] = [{"name": f"frame {problem.frame}", "kind": "element"}]
    return {
        "ruleId": problem.rule.id,
        "ruleIndex": list(RULES).index(problem.rule.id),
        "level": problem.rule.severity,
        "message": {"text": f"{problem.text} {problem.fix}"},
        "locations": [location],
        "properties": {"sdks": problem.sdks, "frame": problem.frame},
    }


def _uri(name: str) -> str:
    if name == "-":
        return "stdin"
    return name if "://" in name else quote(PurePath(name).as_posix())


def junit_report(reports: Sequence[Report | Unjudged]) -> str:
    """Return one JUnit document: a suite per input, a case per release."""
    root = ElementTree.Element("testsuites", name="usechat check")
    for report in reports:
        suite = ElementTree.SubElement(root, "testsuite", name=_xml(report.name))
        if isinstance(report, Unjudged):
            case = ElementTree.SubElement(suite, "testcase", classname=_xml(report.name), name="usechat check")
            ElementTree.SubElement(case, "error", message=_xml(report.reason), type="not judged")
        else:
            _add_cases(suite, report)
        for attribute, element in (("tests", "testcase"), ("failures", "failure"), ("errors", "error")):
            suite.set(attribute, str(sum(1 for _ in suite.iter(element))))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _add_cases(suite: ElementTree.Element, report: Report) -> None:
    for name, verdict in report.verdicts.items():
        case = ElementTree.SubElement(suite, "testcase", classname=_xml(report.name), name=f"AI SDK {name}")
        problems = [problem for problem in report.problems if name in problem.sdks]
        if not verdict.ok:
            first = _xml((verdict.error or "nothing was read").partition("\n")[0])
            ElementTree.SubElement(case, "failure", message=first, type="rejected").text = _lines(problems, "error")
        elif not report.is_whole:
            error = ElementTree.SubElement(case, "error", message="the stream was not read to its end")
            error.set("type", "not judged")
            error.text = _lines(problems, "error")
        if warnings := _lines(problems, "warning"):
            ElementTree.SubElement(case, "system-out").text = warnings


def _lines(problems: Sequence[Problem], severity: str) -> str:
    chosen = [problem for problem in problems if problem.rule.severity == severity]
    places = [f" at frame {problem.frame}" if problem.frame else "" for problem in chosen]
    lines = [f"{one.rule.id}{place}: {one.text} {one.fix}" for one, place in zip(chosen, places, strict=True)]
    return _xml("\n".join(lines))


def _xml(text: str) -> str:
    return _NOT_IN_XML.sub("\ufffd", text)
