"""What `make audit` makes of the reports of pip-audit and npm."""

import json

import pytest

from scripts.audit import Audit, read_npm_audit, read_pip_audit

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
