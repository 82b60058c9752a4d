"""The command `usechat check`: reads each input, judges it, prints the report."""

import os
import shutil
import sys
from argparse import Namespace
from collections.abc import Sequence

from usechat.check.formats import json_report, junit_report, sarif_report, text_report
from usechat.check.report import DEFAULT_SDKS, Report, Unjudged, check_capture, named_releases
from usechat.check.response import Capture
from usechat.check.sources import ChatQuestion, is_url, read_file, read_url
from usechat.errors import CannotJudge

__all__ = ["run"]

_WIDEST = 120


def run(options: Namespace, version: str) -> int:
    """Check every input and return the exit code: 0 accepted, 1 rejected, 2 not judged; of several the highest."""
    sdks = options.sdk or DEFAULT_SDKS
    named_releases(sdks)  # a release that cannot be is worth no request
    reports: list[Report | Unjudged] = []
    for name in options.inputs:
        report = _check(name, sdks, options)
        if isinstance(report, Unjudged):
            sys.stderr.write(f"usechat check: {report.reason}\n")
        elif options.format == "text":
            _print(report, separated=any(isinstance(earlier, Report) for earlier in reports))
        if options.format == "json":
            sys.stdout.write(json_report(report))
        reports.append(report)
    if options.format == "sarif":
        sys.stdout.write(sarif_report(reports, version=version))
    elif options.format == "junit":
        sys.stdout.write(junit_report(reports))
    return max(report.exit_code for report in reports)


def _check(name: str, sdks: Sequence[str], options: Namespace) -> Report | Unjudged:
    try:
        return check_capture(_read(name, options), sdks)
    except CannotJudge as error:
        reason = str(error)
        return Unjudged(name, reason if reason.startswith(name) else f"{name}: {reason}")


def _read(name: str, options: Namespace) -> Capture:
    if not is_url(name):
        return read_file(name, maximum_bytes=options.max_bytes)
    question = ChatQuestion(options.message, tuple(options.header), options.body)
    return read_url(name, question, timeout=options.timeout, maximum_bytes=options.max_bytes)


def _print(report: Report, *, separated: bool) -> None:
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    width = min(_WIDEST, shutil.get_terminal_size((100, 24)).columns)
    sys.stdout.write("\n" * separated + text_report(report, width=width, colour=colour))
