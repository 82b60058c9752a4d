"""The rules: their ids, their words, and that each of them is used and tested."""

import re
from pathlib import Path

import pytest

import usechat.check
from usechat.check import RULES, Rule
from usechat.check.rules import ERRORS, NOTES, WARNINGS

SOURCES = [path for path in Path(usechat.check.__file__).parent.glob("*.py") if not path.name.endswith("_rules.py")]
TESTS = Path(__file__).parent.glob("test_*.py")


def ids_in(paths: list[Path]) -> set[str]:
    return {rule for path in paths for rule in re.findall(r"UC\d{3}", path.read_text(encoding="utf-8"))}


def test_no_id_is_given_twice() -> None:
    assert len(RULES) == len(ERRORS) + len(WARNINGS) + len(NOTES)


def test_every_rule_is_used_and_tested() -> None:
    assert ids_in(SOURCES) == set(RULES)
    assert ids_in(list(TESTS)) >= set(RULES)


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.id)
def test_a_rule_speaks_in_sentences(rule: Rule) -> None:
    assert re.fullmatch(r"UC\d{3}", rule.id)
    assert not rule.title.endswith(".")
    for text in (rule.sees, rule.fix):
        assert text[0].isupper()
        assert text[-1] in '."'
