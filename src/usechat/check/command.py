"""The command `usechat check`: reads each input, judges it, prints the report."""

import os
import shutil
import sys
from argparse import Namespace

from usechat.check.machine_formats import json_report, junit_report, sarif_report
from usechat.check.problems import CannotJudge
from usechat.check.reading import ChatQuestion, is_url, read_file, read_url
from usechat.check.report import DEFAULT_SDKS, Report, check_capture, named_releases
from usechat.check.response import Capture
from usechat.check.text_format import text_report
from usechat.errors import UsechatError

__all__ = ["run"]

_WIDEST = 120


def run(options: Namespace, version: str) -> int:
    """Check every input and return the exit code: 0 accepted, 1 rejected, 2 not judged; of several the highest."""
    sdks = options.sdk or DEFAULT_SDKS
    named_releases(sdks)  # a release that cannot be is worth no request
    reports: list[Report] = []
    exit_code = 0
    for name in options.inputs:
        try:
            report = check_capture(_read(name, options), sdks)
        except CannotJudge as error:
            sys.stderr.write(f"usechat check: {_with_name(name, error)}\n")
            exit_code = 2
            continue
        if options.format in ("text", "json"):
            _print(report, options.format, separated=bool(reports))
        reports.append(report)
        exit_code = max(exit_code, report.exit_code)
    if options.format == "sarif":
        sys.stdout.write(sarif_report(reports, version=version))
    elif options.format == "junit":
        sys.stdout.write(junit_report(reports))
    return exit_code


def _read(name: str, options: Namespace) -> Capture:
    if not is_url(name):
        return read_file(name, maximum_bytes=options.max_bytes)
    question = ChatQuestion(options.message, tuple(options.header), options.body)
    return read_url(name, question, timeout=options.timeout, maximum_bytes=options.max_bytes)


def _with_name(name: str, error: UsechatError) -> str:
    return str(error) if str(error).startswith(name) else f"{name}: {error}"


def _print(report: Report, output_format: str, *, separated: bool) -> None:
    if output_format == "json":
        sys.stdout.write(json_report(report))
        return
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    width = min(_WIDEST, shutil.get_terminal_size((100, 24)).columns)
    sys.stdout.write("\n" * separated + text_report(report, width=width, colour=colour))
