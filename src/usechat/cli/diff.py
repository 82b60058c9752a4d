"""The command `usechat diff`: compares two recordings and prints the first difference."""

import argparse
import sys
from argparse import Namespace
from typing import Final

from usechat.client.recording import StreamRecording, first_difference
from usechat.protocol.releases import release

__all__ = ["add_arguments", "run"]

_DESCRIPTION: Final = """\
Compare the answers of two recordings of `usechat record`, part by part, and describe the first difference. Ids and
times may differ.
"""
_EPILOG: Final = """\
exit code: 0 if the answers are the same, 1 if they differ, 2 if a file cannot be read.

examples:
  usechat diff before.usechat.jsonl after.usechat.jsonl
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.usage = "usechat diff [options] BEFORE AFTER"
    parser.description, parser.epilog = _DESCRIPTION, _EPILOG
    parser.add_argument("before", metavar="BEFORE", help="a recording")
    parser.add_argument("after", metavar="AFTER", help="another recording")
    parser.add_argument("--sdk", default="7", metavar="RELEASE", help="the AI SDK release that reads them (default: 7)")
    parser.set_defaults(run=run)


def run(options: Namespace) -> int:
    """Print the first difference; return 1 if there is one."""
    release(options.sdk)  # raises what is wrong with it before a file is read
    difference = first_difference(
        StreamRecording.read(options.before), StreamRecording.read(options.after), sdk=options.sdk
    )
    sys.stdout.write(f"{difference or 'No difference.'}\n")
    return int(difference is not None)
