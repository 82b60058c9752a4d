"""The problems of a flow, each with its line."""

from collections.abc import Iterable, Mapping

import msgspec

from usechat.open_harness.errors import InvalidFlow
from usechat.open_harness.flow.definition import Place

__all__ = ["FlowProblem", "Lines", "ProblemReport"]


class FlowProblem(msgspec.Struct, frozen=True):
    """One problem; ``where`` names the node or edge and the field, ``line`` counts from one."""

    where: str
    text: str
    line: int | None = None

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        return f"line {self.line}: {place}{self.text}" if self.line is not None else f"{place}{self.text}"


class Lines:
    """The lines at which the values of a file begin. A value without a line has that of the value around it."""

    def __init__(self, lines: Mapping[Place, int] | None = None) -> None:
        self._lines = lines or {}

    def of(self, place: Place) -> int | None:
        """Return the line at which a value, or the nearest one around it, begins."""
        for length in range(len(place), -1, -1):
            if (line := self._lines.get(place[:length])) is not None:
                return line
        return None


class ProblemReport:
    """Collects problems while a flow is read."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self.problems: list[FlowProblem] = []

    def add(self, place: Place, where: str, text: str) -> None:
        """Add a problem of the value at a place."""
        self.problems.append(FlowProblem(where, text, self._lines.of(place)))

    def extend(self, problems: Iterable[tuple[Place, str, str]]) -> None:
        """Add several problems."""
        for problem in problems:
            self.add(*problem)

    def raise_for(self, name: str) -> None:
        """Raise an InvalidFlow if there is any problem; they are sorted by line."""
        if self.problems:
            raise InvalidFlow(name, sorted(self.problems, key=lambda problem: problem.line or 0))
