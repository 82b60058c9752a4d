"""What `make dist` refuses to publish."""

import pytest

from scripts.dist import IN_WHEEL, problems_of

COMPLETE = dict.fromkeys(IN_WHEEL, 1000)

pytestmark = pytest.mark.once


@pytest.mark.parametrize(
    ("names", "problems"),
    [
        (COMPLETE, []),
        (
            {name: size for name, size in COMPLETE.items() if "licenses.md" not in name},
            ["usechat/web/built/licenses.md is missing"],
        ),
        (
            COMPLETE | {"web/node_modules/ai/index.js": 1},
            ["web/node_modules/ai/index.js must not be published"],
        ),
        (COMPLETE | {"usechat/large.js": 10_000_000}, ["10.0 MB are more than 4 MB"]),
    ],
    ids=["complete", "without licences", "with foreign files", "too large"],
)
def test_an_archive_is_complete_clean_and_small(names: dict[str, int], problems: list[str]) -> None:
    assert [*problems_of(names, IN_WHEEL, 4_000_000)] == problems
