"""Check a UI message stream as the clients of AI SDK 5, 6 and 7 read it. This is `usechat check` as a library.

:func:`check_bytes` takes the body of a response and returns the report as JSON values; :func:`check_capture` takes a
whole response and returns a :class:`Report`; :func:`check_pieces` takes a body that comes in pieces, however large.
None of them does I/O: files and URLs are read by :mod:`usechat.check.sources`.

>>> report = check_bytes(b'data: {"type":"text-delta","id":"1","delta":"Hi"}\\n\\ndata: [DONE]\\n\\n', sdks=["7"])
>>> report["ok"], [problem["rule"] for problem in report["problems"]]
(False, ['UC301', 'UC407', 'UC403'])

The rules are listed in ``RULES`` and explained in ``docs/rules.md``.
"""

from usechat.check.problems import Problem
from usechat.check.report import DEFAULT_SDKS, Report, check_bytes, check_capture, check_pieces
from usechat.check.response import Capture
from usechat.check.rules import RULES, Rule
from usechat.check.verdict import Verdict
from usechat.errors import CannotJudge

__all__ = [
    "DEFAULT_SDKS",
    "RULES",
    "CannotJudge",
    "Capture",
    "Problem",
    "Report",
    "Rule",
    "Verdict",
    "check_bytes",
    "check_capture",
    "check_pieces",
]
