"""What is wrong with a response apart from its chunks."""

import pytest

from usechat.check.response import Capture, header_findings, pace_findings, refused

GOOD = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache, no-transform",
    "x-vercel-ai-ui-message-stream": "v1",
    "x-accel-buffering": "no",
}


@pytest.mark.parametrize(
    ("status", "rule"), [(200, None), (201, None), (204, "UC002"), (205, "UC002"), (404, "UC001"), (302, "UC001")]
)
def test_statuses(status: int, rule: str | None) -> None:
    finding = refused(Capture(name="-", body=b"", status=status))
    assert (finding and finding.rule) == rule


@pytest.mark.parametrize(
    ("status", "fix"),
    [
        (401, "Send valid credentials"),
        (403, "Send valid credentials"),
        (404, "Check the address"),
        (405, "Check the address"),
    ],
)
def test_a_status_that_says_more_has_advice_of_its_own(status: int, fix: str) -> None:
    finding = refused(Capture(name="-", body=b"", status=status))
    assert finding is not None
    assert (finding.fix or "").startswith(fix)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, []),
        ({"content-type": "application/json"}, ["UC010"]),
        ({"content-type": ""}, ["UC010"]),
        ({"x-vercel-ai-ui-message-stream": "v2"}, ["UC011"]),
        ({"cache-control": "max-age=60"}, ["UC012"]),
        ({"cache-control": "No-Store"}, []),
        ({"x-accel-buffering": "yes"}, ["UC013"]),
        ({"content-encoding": "gzip"}, ["UC014"]),
        ({"content-encoding": "identity"}, []),
    ],
)
def test_headers(change: dict[str, str], expected: list[str]) -> None:
    assert [finding.rule for finding in header_findings(GOOD | change)] == expected


def test_no_headers_at_all() -> None:
    assert [finding.rule for finding in header_findings({})] == ["UC010", "UC011", "UC012", "UC013"]


@pytest.mark.parametrize(
    ("arrivals", "chunks", "expected"),
    [
        ([], 99, []),
        ([(2.0, 50), (2.05, 100)], 9, []),
        ([(2.0, 50), (2.05, 100)], 10, ["UC015"]),
        ([(2.0, 50), (3.0, 100)], 10, []),
        ([(0.5, 100)], 10, []),
        # A comment at once, all chunks later; the end mark still later.
        ([(0.0, 5), (2.0, 100)], 10, ["UC015"]),
        ([(2.0, 90), (9.0, 100)], 10, ["UC015"]),
    ],
)
def test_the_pace(arrivals: list[tuple[float, int]], chunks: int, expected: list[str]) -> None:
    findings = pace_findings(arrivals, chunks, first_end=10, last_end=90)
    assert [finding.rule for finding in findings] == expected
