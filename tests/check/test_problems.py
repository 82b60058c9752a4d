"""Findings become problems: equal ones are one."""

from usechat.check import RULES
from usechat.check.frames import Place
from usechat.check.problems import Finding, Problems


def test_a_finding_of_two_releases_is_one_problem() -> None:
    problems = Problems()
    for sdk in ("5", "6", "6"):
        problems.add(Finding("UC203", "x", "unknown"), [sdk], Place(3, 5, {"type": "x"}))
    assert [problem.to_json() for problem in problems.sorted()] == [
        {
            "rule": "UC203",
            "severity": "error",
            "frame": 3,
            "chunk": {"type": "x"},
            "sdks": ["5", "6"],
            "text": f"unknown. {RULES['UC203'].sees}",
            "fix": RULES["UC203"].fix,
        }
    ]


def test_a_finding_in_later_frames_is_counted() -> None:
    problems = Problems()
    for frame in (1, 1, 2, 3):
        problems.add(Finding("UC112", "", "late"), ["7"], Place(frame))
    [problem] = problems.sorted()
    assert problem.text.startswith("late (and in 2 more frames). These chunks")
    problem.more = 1
    assert problem.text.startswith("late (and in 1 more frame). These chunks")


def test_a_remedy_of_its_own_wins() -> None:
    problems = Problems()
    problems.add(Finding("UC112", "", "late", "Do this."), ["7"])
    assert [problem.fix for problem in problems.sorted()] == ["Do this."]


def test_of_one_rule_twenty_are_kept() -> None:
    problems = Problems()
    for number in range(1000):
        problems.add(Finding("UC112", str(number), "late"), ["7"], Place(number))
    assert len(problems.sorted()) == 20


def test_errors_come_first_and_then_what_is_about_the_whole() -> None:
    problems = Problems()
    for rule, frame in (("UC407", None), ("UC112", 1), ("UC203", 9), ("UC201", 2)):
        problems.add(Finding(rule, "", ""), ["7"], Place(frame))
    assert [problem.rule.id for problem in problems.sorted()] == ["UC201", "UC203", "UC407", "UC112"]
