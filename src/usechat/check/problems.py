"""Problems: what a rule found, in which frame and for which releases. Equal findings are merged."""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple, get_args

import msgspec

from usechat.check.frames import Frame, Place
from usechat.check.rules import RULES, Rule, Severity

__all__ = ["Finding", "Problem", "Problems"]

_MAXIMUM_OF_ONE_RULE: Final = 20
_ORDER: Final[tuple[Severity, ...]] = get_args(Severity)


class Finding(NamedTuple):
    """What one rule found in one place.

    Findings with the same ``rule`` and ``key`` are one problem: a later frame is counted, another release is added.
    """

    rule: str
    key: str
    what: str
    fix: str | None = None
    """How to fix this case, if that is more specific than the rule's own advice."""


class Problem(msgspec.Struct):
    """One problem of a stream: the rule, where it was found first, and the releases that it concerns.

    ``what`` is the finding and ``fix`` the advice. ``frame`` and ``line`` are the first place, counted from 1, and
    ``chunk`` is the chunk there, or the text of the line, shortened if it is long. ``sdks`` are the releases, and
    ``more`` is how many later frames have the same problem.

    >>> from usechat.check import RULES
    >>> problem = Problem(RULES["UC003"], "The body is empty", "Send at least one chunk", frame=1, sdks=["7"])
    >>> problem.to_json()["severity"]
    'error'
    """

    rule: Rule
    what: str
    fix: str
    frame: int | None = None
    line: int | None = None
    chunk: Any = None
    sdks: list[str] = []
    more: int = 0

    @property
    def text(self) -> str:
        """What is wrong, and what the user sees."""
        again = f" (and in {self.more} more frame{'s' * (self.more > 1)})" if self.more else ""
        return f"{self.what}{again}. {self.rule.sees}"

    def to_json(self) -> dict[str, Any]:
        """Return the problem as JSON values, as in the report."""
        return {
            "rule": self.rule.id,
            "severity": self.rule.severity,
            "frame": self.frame,
            "chunk": self.chunk,
            "sdks": self.sdks,
            "text": self.text,
            "fix": self.fix,
        }


class Problems:
    """Collects findings. At most twenty problems of one rule are kept, so that a long stream has a short report."""

    def __init__(self) -> None:
        self._problems: dict[tuple[str, str], Problem] = {}
        self._last_frame: dict[tuple[str, str], int | None] = {}
        self._count: dict[str, int] = {}

    def add(self, finding: Finding, sdks: Iterable[str], where: Frame | Place | None = None) -> None:
        """Add a finding, or count it as one more case of a known problem."""
        key = finding.rule, finding.key
        frame = where.number if where else None
        problem = self._problems.get(key)
        if problem is None:
            if self._count.get(finding.rule, 0) >= _MAXIMUM_OF_ONE_RULE:
                return
            self._count[finding.rule] = self._count.get(finding.rule, 0) + 1
            rule = RULES[finding.rule]
            place = where.place if isinstance(where, Frame) else where
            problem = Problem(rule, finding.what, finding.fix or rule.fix)
            if place is not None:
                problem.frame, problem.line, problem.chunk = place
            self._problems[key] = problem
        elif frame != self._last_frame[key]:
            problem.more += 1
        self._last_frame[key] = frame
        problem.sdks += [sdk for sdk in sdks if sdk not in problem.sdks]

    def sorted(self) -> list[Problem]:
        """Return the problems: errors, warnings, notes, each in the order of the stream."""
        return sorted(
            self._problems.values(), key=lambda problem: (_ORDER.index(problem.rule.severity), problem.frame or 0)
        )
