"""The rules of `usechat check`: one row each, with a stable id. `docs/rules.md` shows the same table to people.

UC0xx is about the response, UC1xx about its events, UC2xx about one chunk, UC3xx about an order of chunks that a client
refuses, UC4xx about what every client accepts and people suffer from. An id is never given to another rule.
"""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

from usechat.check.error_rules import ERRORS
from usechat.check.warning_rules import WARNINGS

__all__ = ["RULES", "Rule", "Severity"]

Severity: TypeAlias = Literal["error", "warning"]


class Rule(NamedTuple):
    """One thing that can be wrong: what the user sees of it, and how to mend it."""

    id: str
    severity: Severity
    title: str
    sees: str
    fix: str


_ROWS: Final = [
    *(Rule(rule, "error", title, sees, fix) for rule, title, sees, fix in ERRORS),
    *(Rule(rule, "warning", title, sees, fix) for rule, title, sees, fix in WARNINGS),
]

RULES: Final[Mapping[str, Rule]] = {rule.id: rule for rule in sorted(_ROWS)}
"""Every rule by its id."""
