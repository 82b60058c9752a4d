"""What `make audit` makes of the reports of pip-audit and npm."""

import json

import pytest

from scripts.audit import Audit, environments, pins, read_npm_audit, read_pip_audit, without_repeats

pytestmark = [pytest.mark.once]


@pytest.mark.parametrize(
    ("packages", "audit"),
    [
        pytest.param([{"name": "a", "version": "1", "vulns": []}], Audit([]), id="nothing known"),
        pytest.param(
            [{"name": "a", "version": "1", "vulns": [{"id": "PYSEC-1", "fix_versions": ["2", "3"]}]}],
            Audit(["a 1: PYSEC-1, fixed in 2, 3"]),
            id="a vulnerability",
        ),
        pytest.param(
            [{"name": "a", "version": "1", "vulns": []}, {"name": "b", "skip_reason": "not found: b"}],
            Audit([], "1 of 2 packages, such as: not found: b"),
            id="a package that could not be looked up",
        ),
    ],
)
def test_a_report_of_pip_audit(packages: list[object], audit: Audit) -> None:
    assert read_pip_audit(json.dumps({"dependencies": packages, "fixes": []})) == audit


def test_the_pins_of_every_environment_are_audited() -> None:
    assert {("--group", "crewai"), ("--group", "temporal"), ("--extra", "google-adk")} <= set(environments())
    packages, *_ = without_repeats(pins([("--group", "crewai")]))
    assert {"crewai", "sanic"} <= {pin.partition("==")[0] for pin in packages}


def test_a_package_of_two_versions_stands_in_two_lists() -> None:
    lines = ["# a comment", "b==1 ; python_version < '3.13'", "a==1", "a==2", "a==1", "-e ."]
    assert without_repeats(lines) == [["a==1", "b==1"], ["a==2"]]


def test_pip_audit_without_an_answer_has_audited_nothing() -> None:
    assert read_pip_audit("").not_audited == "pip-audit got no answer from its service"


ADVISORY = {"title": "Bad", "severity": "high", "url": "https://advisories.example/1"}


@pytest.mark.parametrize(
    ("report", "audit"),
    [
        pytest.param({"vulnerabilities": {}}, Audit([]), id="nothing known"),
        pytest.param(
            {"vulnerabilities": {"a": {"via": [ADVISORY], "range": "<2"}, "b": {"via": ["a"], "range": "*"}}},
            Audit(["a <2: high, Bad (https://advisories.example/1)"]),
            id="a vulnerability, and a package that depends on it",
        ),
        pytest.param({"message": "405 Method Not Allowed", "statusCode": 405}, Audit([], "405 Method Not Allowed")),
    ],
)
def test_a_report_of_npm(report: dict[str, object], audit: Audit) -> None:
    assert read_npm_audit(json.dumps(report)) == audit


def test_npm_without_a_report_has_audited_nothing() -> None:
    assert read_npm_audit("").not_audited == "npm printed no report"
