"""What is set when nobody sets anything: the documentation's numbers are the code's."""

import re
from typing import Any, cast

import pytest

from scripts.generate_docs import ROOT
from usechat.errors import InvalidSetting
from usechat.protocol.request import Limits
from usechat.runs.settings import CancelAfter, Disconnect, Timeouts, linger
from usechat.server import ChatApp, Settings, cancel_after

pytestmark = pytest.mark.quick

PAGE = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
MIB = 1024 * 1024
DEFAULTS: dict[str, Any] = {
    "Timeouts.first_event": (Timeouts().first_event, "120"),
    "Timeouts.idle": (Timeouts().idle, "120"),
    "Timeouts.total": (Timeouts().total, "none"),
    "Timeouts.stop": (Timeouts().stop, "5"),
    "Limits.maximum_bytes": (Limits().maximum_bytes, "16 MiB"),
    "Limits.maximum_messages": (Limits().maximum_messages, "2,000"),
    "Limits.maximum_parts": (Limits().maximum_parts, "20,000"),
    "Limits.maximum_files": (Limits().maximum_files, "500"),
    "Limits.maximum_file_bytes": (Limits().maximum_file_bytes, "16 MiB"),
    "Settings.maximum_waiting_bytes": (Settings().maximum_waiting_bytes, "1 MiB"),
    "Settings.maximum_run_bytes": (Settings().maximum_run_bytes, "64 MiB"),
    "Settings.log_memory_bytes": (Settings().log_memory_bytes, "1 MiB"),
    "Settings.keep_alive": (Settings().keep_alive, "15"),
}


def value_of(text: str) -> float | None:
    """Return what a cell of the table says."""
    if text == "none":
        return None
    number, _, unit = text.replace(",", "").partition(" ")
    return float(number) * (MIB if unit == "MiB" else 1)


@pytest.mark.parametrize("name", DEFAULTS)
def test_every_limit_has_the_documented_default(name: str) -> None:
    value, documented = DEFAULTS[name]
    assert value == value_of(documented)
    assert re.search(rf"^\| .* \| {documented} \| `{re.escape(name)}`", PAGE, re.MULTILINE)


def test_the_other_defaults_are_those_that_users_expect() -> None:
    settings = Settings()
    assert (settings.sdk, settings.conflict, settings.event_names) == ("any", "reject", False)
    assert (settings.timeouts, settings.limits, settings.on_error) == (Timeouts(), Limits(), None)


@pytest.mark.parametrize("keeps_log", [True, False])
@pytest.mark.parametrize(("policy", "seconds"), [("cancel", 0), ("continue", None), (cancel_after(0.5), 0.5)])
def test_a_policy_says_how_long_a_run_goes_on_without_a_reader(
    policy: Disconnect, seconds: float | None, keeps_log: bool
) -> None:
    assert linger(policy, keeps_log=keeps_log) == seconds


@pytest.mark.parametrize(("keeps_log", "seconds"), [(True, 15), (False, 0)])
def test_without_a_policy_a_run_waits_only_where_readers_may_come_back(keeps_log: bool, seconds: float) -> None:
    assert linger(Settings().disconnect, keeps_log=keeps_log) == seconds


@pytest.mark.parametrize("policy", ["never", 15, cancel_after(-1), cast("Any", CancelAfter)("15")])
def test_another_policy_is_refused_when_the_app_is_made(policy: Any) -> None:
    with pytest.raises(InvalidSetting, match="disconnect is 'cancel', 'continue' or cancel_after"):
        ChatApp(lambda _turn: "Hi", settings=Settings(disconnect=policy))


@pytest.mark.parametrize("rule", ["Continue", "", True])
def test_a_rule_for_crashes_that_does_not_exist_is_refused(rule: Any) -> None:
    with pytest.raises(InvalidSetting, match=re.escape(f"after_crash is 'continue', 'ask' or 'lose', not {rule!r}")):
        Settings(after_crash=rule)


@pytest.mark.parametrize("count", [0, -1, 1.5, "8", True])
def test_a_number_of_continued_answers_that_makes_no_sense_is_refused(count: Any) -> None:
    with pytest.raises(InvalidSetting, match=f"recover is a whole number above 0, not {count!r}"):
        Settings(recover=count)
