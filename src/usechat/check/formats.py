"""The formats of a report: text for people; JSON, SARIF 2.1.0, JUnit XML and GitHub annotations for programs."""

import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import quote
from xml.etree import ElementTree

from usechat.check.problems import Problem
from usechat.check.report import Report, Unjudged
from usechat.check.rules import RULES, Severity
from usechat.check.verdict import Verdict
from usechat.protocol.ui_messages import is_dynamic_tool, is_tool
from usechat.protocol.values import json_text

__all__ = [
    "github_report",
    "json_report",
    "junit_report",
    "sarif_report",
    "text_report",
]


_Colour: TypeAlias = Literal["red", "yellow", "green", "bold", "dim"]
_CODES: Final[dict[_Colour, str]] = {"red": "1;31", "yellow": "1;33", "green": "1;32", "bold": "1", "dim": "2"}
_COLOURS: Final[dict[Severity, _Colour]] = {"error": "red", "warning": "yellow", "note": "dim"}
_MAXIMUM_PARTS: Final = 20
_LONGEST_TEXT: Final = 2_000
_LABEL_WIDTH: Final = 8
_INDENT: Final = "    "


def text_report(report: Report, *, width: int = 100, colour: bool = False) -> str:
    """Return the report as text in lines of ``width`` characters. Colour only repeats what the text says."""
    writer = _Writer(width, colour)
    lines = [*writer.headline(report)]
    effect = ""
    for problem in report.problems:
        lines += ["", *writer.problem(problem, report, is_same_effect=problem.rule.sees == effect)]
        effect = problem.rule.sees
    lines += ["", *writer.outcome(report)]
    return "\n".join(lines) + "\n"


class _Writer:
    def __init__(self, width: int, colour: bool) -> None:
        self._width = max(40, width)
        self._colour = colour

    def headline(self, report: Report) -> Iterator[str]:
        severities = Counter(problem.rule.severity for problem in report.problems)
        accepting = [name for name, verdict in report.verdicts.items() if verdict.ok]
        rejecting = [name for name, verdict in report.verdicts.items() if not verdict.ok]
        word, colour, text = _headline(report, accepting, rejecting)
        counts = [_count(severities[severity], severity) for severity in _COLOURS]
        counts.append(_count(report.frame_count, "frame"))
        summary = ", ".join(count for count in counts if not count.startswith("0 ")) or "0 frames"
        yield f"{self._paint(_printable(report.name), 'bold')}: {self._paint(word, colour)}"
        yield from self._wrap(f"{text} ({summary})", "", "")

    def problem(self, problem: Problem, report: Report, *, is_same_effect: bool) -> Iterator[str]:
        rule = problem.rule
        where = f" at frame {problem.frame}" if problem.frame else ""
        where += f"{',' if where else ' at'} line {problem.line}" if problem.line else ""
        again = f" (and in {_count(problem.more, 'more frame')})" if problem.more else ""
        severity = self._paint(rule.severity, _COLOURS[rule.severity])
        head = f"{rule.severity} {rule.id}{where}: {_shown(problem.what, _LONGEST_TEXT)}{again}"
        wrapped = list(self._wrap(head, "", _INDENT))
        yield severity + wrapped[0].removeprefix(rule.severity)
        yield from wrapped[1:]
        if problem.chunk is not None:
            yield from self._labelled("chunk", _shown(_chunk_text(problem.chunk), 2 * self._width), as_it_is=True)
        if rule.severity == "error" and not all(report.verdicts[name].ok for name in problem.sdks):
            yield from self._labelled("breaks", f"AI SDK {', '.join(problem.sdks)}")
        elif len(problem.sdks) < len(report.verdicts):
            yield from self._labelled("in", f"AI SDK {', '.join(problem.sdks)}")
        yield from self._labelled("effect", "As above." if is_same_effect else rule.sees)
        yield from self._labelled("fix", problem.fix)

    def outcome(self, report: Report) -> Iterator[str]:
        groups: dict[str, tuple[Verdict, list[str]]] = {}
        for name, verdict in report.verdicts.items():
            key = json_text([verdict.status, verdict.error, verdict.message])
            groups.setdefault(key, (verdict, []))[1].append(name)
        yield self._paint("What the page shows", "bold")
        for verdict, names in groups.values():
            line = f'  AI SDK {", ".join(names)}: status "{verdict.status}", {_message_line(verdict)}'
            yield from self._wrap(line, "", _INDENT)
            if verdict.error is not None:
                text = _shown(verdict.error.partition("\n")[0], 2 * self._width)
                yield from self._wrap(f"error text: {text}", _INDENT, _INDENT * 2)
            if verdict.message is not None:
                yield from self._parts(verdict.message["parts"], is_shortened=verdict.is_shortened)

    def _parts(self, parts: Sequence[dict[str, Any]], *, is_shortened: bool) -> Iterator[str]:
        for part in parts[:_MAXIMUM_PARTS]:
            yield _INDENT + _shown(_part_line(part), self._width - len(_INDENT))
        if len(parts) > _MAXIMUM_PARTS:
            least = "at least " if is_shortened else ""
            yield f"{_INDENT}… and {least}{_count(len(parts) - _MAXIMUM_PARTS, 'more part')}"

    def _labelled(self, label: str, text: str, *, as_it_is: bool = False) -> Iterator[str]:
        hanging = _INDENT + " " * _LABEL_WIDTH
        lines = list(self._wrap(text, hanging, hanging, as_it_is=as_it_is))
        yield _INDENT + self._paint(label, "dim") + lines[0][len(_INDENT) + len(label) :]
        yield from lines[1:]

    def _wrap(self, text: str, first: str, rest: str, *, as_it_is: bool = False) -> list[str]:
        return textwrap.wrap(
            text,
            self._width,
            initial_indent=first,
            subsequent_indent=rest,
            break_on_hyphens=False,
            drop_whitespace=not as_it_is,
        )

    def _paint(self, text: str, colour: _Colour) -> str:
        return f"\x1b[{_CODES[colour]}m{text}\x1b[0m" if self._colour else text


def _headline(report: Report, accepting: Sequence[str], rejecting: Sequence[str]) -> tuple[str, _Colour, str]:
    if rejecting and all(verdict.status == "ready" for verdict in report.verdicts.values()):
        return "no answer", "red", f"AI SDK {_and(rejecting)} {_verb(rejecting, 'find')} nothing to read in it."
    if rejecting:
        others = f"; {_and(accepting)} {_verb(accepting, 'accept')} it." if accepting else "."
        return "rejected", "red", f"AI SDK {_and(rejecting)} {_verb(rejecting, 'reject')} this stream{others}"
    text = f"AI SDK {_and(accepting)} {_verb(accepting, 'accept')}"
    if not report.is_whole:
        return "not judged", "yellow", f"{text} what was read, which is not all."
    return "accepted", "green", f"{text} this stream."


def _message_line(verdict: Verdict) -> str:
    if verdict.message is None:
        return "no message"
    least = "at least " if verdict.is_shortened else ""
    name = _shown(json_text(verdict.message["id"]), _LONGEST_TEXT)
    return f"message {name} of {least}{_count(len(verdict.message['parts']), 'part')}"


def _part_line(part: dict[str, Any]) -> str:
    match part["type"]:
        case "text" | "reasoning":
            state = part.get("state", "no state")  # as in a message that the page began with
            return f"{part['type']} ({state}) {json_text(part['text'])}"
        case "file" | "reasoning-file":
            return f"{part['type']} ({part['mediaType']}) {part['url']}"
    if is_tool(part):
        name = f"{part['type']} {part['toolName']}" if is_dynamic_tool(part) else part["type"]
        return f"{name} {_tool_line(part)}"
    rest = {key: value for key, value in part.items() if key != "type"}
    return f"{part['type']} {json_text(rest)}" if rest else str(part["type"])


def _tool_line(part: dict[str, Any]) -> str:
    values = [f"{key} {json_text(part[key])}" for key in ("input", "output", "errorText") if key in part]
    return " ".join([f"({part['state']}) {json_text(part['toolCallId'])}", *values])


def _chunk_text(chunk: Any) -> str:
    return chunk if isinstance(chunk, str) else json_text(chunk)


def _printable(text: str) -> str:
    """Return the text with everything escaped that a terminal might interpret."""
    return text if text.isprintable() else "".join(map(_escaped, text))


def _escaped(character: str) -> str:
    return character if character.isprintable() else repr(character)[1:-1]


def _shown(text: str, width: int) -> str:
    """Return the text escaped for a terminal and cut to a width; cut first, so that a long text is not escaped."""
    printable = _printable(text[: width + 1])
    return printable if len(printable) <= width else printable[: width - 1] + "…"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _verb(names: Sequence[str], verb: str) -> str:
    return f"{verb}s" if len(names) == 1 else verb


# For programs: JSON, SARIF 2.1.0 for code scanning, JUnit XML for test dashboards, annotations for GitHub workflows.

_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_NOT_IN_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def json_report(report: Report | Unjudged) -> str:
    """Return a report as one line of JSON."""
    return json_text(report.to_json()) + "\n"


def sarif_report(reports: Sequence[Report | Unjudged], *, version: str) -> str:
    """Return one SARIF log with the problems of all reports; an input that could not be checked is a notification."""
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
        if others := _lines(problems, "warning", "note"):
            ElementTree.SubElement(case, "system-out").text = others


def _lines(problems: Sequence[Problem], *severities: Severity) -> str:
    selection = [problem for problem in problems if problem.rule.severity in severities]
    places = [f" at frame {problem.frame}" if problem.frame else "" for problem in selection]
    lines = [f"{one.rule.id}{place}: {one.text} {one.fix}" for one, place in zip(selection, places, strict=True)]
    return _xml("\n".join(lines))


def _xml(text: str) -> str:
    return _NOT_IN_XML.sub("\ufffd", text)


# https://docs.github.com/actions/reference/workflow-commands-for-github-actions: a command is one line, and its
# properties are separated by commas.
_IN_COMMANDS: Final = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_COMMANDS: Final[dict[Severity, str]] = {"error": "error", "warning": "warning", "note": "notice"}
_IN_PROPERTIES: Final = _IN_COMMANDS | str.maketrans({":": "%3A", ",": "%2C"})


def github_report(report: Report | Unjudged) -> str:
    """Return a report as commands of a GitHub workflow: one annotation per problem, and the outcome for the log."""
    if isinstance(report, Unjudged):
        return _annotation("error", report.name, "usechat check", report.reason)
    accepting = [name for name, verdict in report.verdicts.items() if verdict.ok]
    rejecting = [name for name, verdict in report.verdicts.items() if not verdict.ok]
    word, _, text = _headline(report, accepting, rejecting)
    annotations = [
        _annotation(
            _COMMANDS[problem.rule.severity],
            report.name,
            f"{problem.rule.id} {problem.rule.title}",
            f"{_at_frame(problem)}{problem.text} {problem.fix}",
            line=problem.line,
        )
        for problem in report.problems
    ]
    return "".join([*annotations, f"{_printable(report.name)}: {word}. {text}\n"])


def _annotation(command: str, name: str, title: str, text: str, *, line: int | None = None) -> str:
    properties = {"title": title}
    if name == "-" or "://" in name:
        text = f"{name}: {text}"  # there is no file that could be shown
    else:
        properties = {"file": PurePath(name).as_posix(), **({} if line is None else {"line": str(line)}), **properties}
    parameters = ",".join(f"{key}={value.translate(_IN_PROPERTIES)}" for key, value in properties.items())
    return f"::{command} {parameters}::{text.translate(_IN_COMMANDS)}\n"


def _at_frame(problem: Problem) -> str:
    return f"frame {problem.frame}: " if problem.frame else ""
