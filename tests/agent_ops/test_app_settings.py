"""The switch, and what the route insists on."""

import pytest

from usechat.agent_ops.app import SESSION_SETTINGS, for_sessions, is_switched_on
from usechat.runs.settings import Settings, cancel_after


@pytest.mark.parametrize(
    ("switch", "mounted", "named"),
    [
        (None, False, True),
        ("true", True, True),
        ("TRUE ", True, True),
        ("1", True, True),
        ("false", False, False),
        ("0", False, False),
        ("", False, False),
        ("perhaps", False, False),
    ],
)
def test_the_switch_is_off_unless_it_is_on_and_naming_the_kind_is_consent(
    switch: str | None, mounted: bool, named: bool
) -> None:
    environment = {} if switch is None else {"ENABLE_AI_SDK_ADAPTER": switch}
    assert is_switched_on(environment) is mounted
    assert is_switched_on(environment, consent=True) is named


def test_without_a_store_a_page_that_goes_stops_its_run() -> None:
    assert for_sessions(SESSION_SETTINGS, has_store=False).disconnect == "cancel"
    assert for_sessions(SESSION_SETTINGS, has_store=True).disconnect is None
    assert for_sessions(Settings(disconnect=cancel_after(60)), has_store=True).disconnect == cancel_after(60)


def test_no_setting_brings_the_409_back() -> None:
    assert for_sessions(Settings(conflict="reject"), has_store=True).conflict == "queue"


def test_frames_are_named_and_silence_is_the_connections_business() -> None:
    assert SESSION_SETTINGS.event_names
    assert (SESSION_SETTINGS.timeouts.first_event, SESSION_SETTINGS.timeouts.idle) == (None, None)
