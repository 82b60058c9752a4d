"""How the route of a session differs from other chats, and the switch that turns it on."""

from collections.abc import Mapping
from typing import Final

import msgspec

from usechat.runs.run import Timeouts
from usechat.server.settings import Settings

__all__ = ["SESSION_SETTINGS", "SWITCH", "for_sessions", "is_switched_on"]

SWITCH: Final = "ENABLE_AI_SDK_ADAPTER"
"""The variable of the environment that lets the route answer."""

SESSION_SETTINGS: Final = Settings(event_names=True, conflict="queue", timeouts=Timeouts(first_event=None, idle=None))
"""The settings of the route. How long a session may be silent is the upstream connection's business: it alone hears
the frames of which nothing is shown. To change one: ``msgspec.structs.replace(SESSION_SETTINGS, sdk="7")``."""


def for_sessions(settings: Settings, *, kept: bool) -> Settings:
    """Return the settings as the route can keep them: there is no 409, and who cannot come back stops the run."""
    disconnect = settings.disconnect if kept else "cancel"
    return msgspec.structs.replace(settings, conflict="queue", disconnect=disconnect)


def is_switched_on(environment: Mapping[str, str], *, consent: bool = False) -> bool:
    """Tell whether the route answers: as the variable says, or where it is not set, by ``consent``."""
    said = environment.get(SWITCH)
    return consent if said is None else said.strip().lower() in ("true", "1")
