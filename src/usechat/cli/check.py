"""The command `usechat check`: its options; it reads each input, checks it and prints the report."""

import argparse
import itertools
import os
import shutil
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from typing import Final

from usechat import __version__
from usechat.check.formats import github_report, json_report, junit_report, sarif_report, text_report
from usechat.check.report import DEFAULT_SDKS, Report, Unjudged, check_capture, check_pieces, named_releases
from usechat.check.sources import ChatQuestion, is_url, read_file, read_url
from usechat.cli import options as read
from usechat.errors import CannotJudge, UnusableFile

__all__ = ["add_arguments", "run"]

_DESCRIPTION: Final = """\
Check a UI message stream as the real clients of AI SDK 5, 6 and 7 read it. The report says which chunk breaks which
release, what the user sees, and how to fix it. It also warns about problems that no client rejects but users notice.
"""
_EPILOG: Final = """\
exit code: 0 if every chosen release accepts every input, 1 if one rejects or shows nothing, 2 if an input could not be
checked. A stream that ends with an `error` chunk is legal: it is accepted, with a warning.

examples:
  usechat check capture.sse tour.usechat.jsonl
  curl -sN -d @request.json localhost:3000/api/chat | usechat check -
  usechat check http://localhost:3000/api/chat --header 'x-key: …' --sdk any
"""
_PRINTED_AT_ONCE: Final = {"json": json_report, "github": github_report}
_WIDEST: Final = 120


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.usage = "usechat check [options] INPUT …"
    parser.description, parser.epilog = _DESCRIPTION, _EPILOG
    add = parser.add_argument
    add(
        "inputs",
        nargs="+",
        metavar="INPUT",
        help="a file, a recording (*.usechat.jsonl), the URL of a chat endpoint, or - for standard input",
    )
    add("--sdk", action="append", metavar="RELEASE",
        help="5, 6 or 7 for the newest release of that major version, one release such as 6.0.150, or any for the first"
        " and the newest of all three, which stands for every release; repeatable (default: 5, 6 and 7)")  # fmt: skip
    add("--format", choices=("text", "json", "sarif", "junit", "github"), default="text", metavar="FORMAT",
        help="text, json (one object per input and line), sarif, junit, or github for annotations in a GitHub workflow"
        " (default: text)")  # fmt: skip
    add = parser.add_argument_group("for a URL").add_argument
    add("--message", default="Hello!", metavar="TEXT", help="the user's message (default: Hello!)")
    add("--header", action="append", default=[], type=read.header, metavar="'NAME: VALUE'",
        help="add this header to the request; repeatable")  # fmt: skip
    add("--body", default={}, type=read.json_object, metavar="JSON",
        help="merge this object into the body of the request; its keys replace existing ones")  # fmt: skip
    add("--timeout", default=60.0, type=read.seconds, metavar="SECONDS",
        help="stop reading after this time (default: 60)")  # fmt: skip
    add("--max-bytes", type=read.count, default=128 * 1024 * 1024, metavar="N",
        help="stop reading after N bytes (default: 134217728, 128 MiB)")  # fmt: skip
    add("--insecure", action="store_true", help="accept every TLS certificate, such as a self-signed one")
    parser.set_defaults(run=run)


def run(options: Namespace) -> int:
    """Check every input; return the exit code: 0 accepted, 1 rejected, 2 not checked; of several the highest."""
    sdks = options.sdk or DEFAULT_SDKS
    named_releases(sdks)  # before any request is sent
    reports: list[Report | Unjudged] = []
    codes: list[int] = []
    for report, code in itertools.chain.from_iterable(_check(name, sdks, options) for name in options.inputs):
        codes.append(code)
        if isinstance(report, Unjudged):
            sys.stderr.write(f"usechat check: {report.reason}\n")
        elif options.format == "text":
            _print(report, separated=any(isinstance(earlier, Report) for earlier in reports))
        if options.format in _PRINTED_AT_ONCE:
            sys.stdout.write(_PRINTED_AT_ONCE[options.format](report))
        reports.append(report)
    if options.format == "sarif":
        sys.stdout.write(sarif_report(reports, version=__version__))
    elif options.format == "junit":
        sys.stdout.write(junit_report(reports))
    return max(codes)


def _check(name: str, sdks: Sequence[str], options: Namespace) -> Iterator[tuple[Report | Unjudged, int]]:
    """Yield the reports on an input and their exit codes: of a recording several, of everything else one."""
    if name.endswith(".usechat.jsonl"):
        yield from _check_recording(name, sdks)
    else:
        report = _check_stream(name, sdks, options)
        yield report, report.exit_code


def _check_recording(name: str, sdks: Sequence[str]) -> Iterator[tuple[Report | Unjudged, int]]:
    """Yield the reports on the answers of a recording. That a page left one before its end is no failure."""
    from usechat.client.recording import StreamRecording

    try:
        answers = StreamRecording.read(name).questions
    except UnusableFile as error:
        yield Unjudged(name, str(error)), Unjudged.exit_code
        return
    if not answers:
        yield (
            Unjudged(name, f"{name} holds no answer to a chat request, so there is nothing to check"),
            Unjudged.exit_code,
        )
    for number, answer in enumerate(answers, 1):
        place = f"{name}, answer {number}"
        if answer.status is None:
            reason = "the endpoint could not be reached" if answer.end == "broken" else "the recording has no response"
            yield Unjudged(place, f"{place}: {reason}"), Unjudged.exit_code
            continue
        report = check_capture(answer.capture(place), sdks)
        yield report, int(not all(verdict.ok for verdict in report.verdicts.values()))


def _check_stream(name: str, sdks: Sequence[str], options: Namespace) -> Report | Unjudged:
    try:
        if not is_url(name):
            return check_pieces(read_file(name), name=name, sdks=sdks)
        question = ChatQuestion(options.message, tuple(options.header), options.body)
        capture = read_url(
            name, question, timeout=options.timeout, maximum_bytes=options.max_bytes, insecure=options.insecure
        )
        return check_capture(capture, sdks)
    except CannotJudge as error:
        reason = str(error)
        return Unjudged(name, reason if reason.startswith(name) else f"{name}: {reason}")


def _print(report: Report, *, separated: bool) -> None:
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    width = min(_WIDEST, shutil.get_terminal_size((100, 24)).columns)
    sys.stdout.write("\n" * separated + text_report(report, width=width, colour=colour))
