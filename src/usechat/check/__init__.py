"""`usechat check`: judges a stream as the real clients of AI SDK 5, 6 and 7 would, and says what to mend.

:func:`check_bytes` takes the body of a response and returns the report; :func:`judge` is one release's verdict alone.
Both are pure. Reading files and URLs (:mod:`usechat.check.sources`) is apart.
"""

from usechat.check.problems import Problem
from usechat.check.report import DEFAULT_SDKS, Report, check_bytes, check_capture
from usechat.check.response import Capture
from usechat.check.rules import RULES, Rule
from usechat.check.verdict import Verdict, judge
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
    "judge",
]
