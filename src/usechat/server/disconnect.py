"""What becomes of a run when nobody reads it any more."""

from typing import Final, Literal, TypeAlias

import msgspec

from usechat.errors import LocalProtocolError

__all__ = ["CancelAfter", "Disconnect", "cancel_after", "linger"]

_TIME_TO_RELOAD: Final = 15
"""Seconds that a page which is reloaded has to come back."""


class CancelAfter(msgspec.Struct, frozen=True):
    """Cancel the run after so many seconds without any reader."""

    seconds: float


Disconnect: TypeAlias = Literal["cancel", "continue"] | CancelAfter
"""``cancel`` stops the run at once, ``continue`` lets it go on to its end; or :func:`cancel_after`."""


def cancel_after(seconds: float) -> CancelAfter:
    """Cancel a run that had no reader for so many seconds: a page that is reloaded comes back sooner."""
    return CancelAfter(seconds)


def linger(policy: Disconnect | None, *, kept: bool) -> float | None:
    """Return how many seconds a run goes on without any reader; nothing means to its end.

    Without a policy, a run whose log is ``kept`` waits for a page that is reloaded. Nobody can come back to another.
    """
    match policy:
        case None:
            return _TIME_TO_RELOAD if kept else 0
        case "cancel":
            return 0
        case "continue":
            return None
        case CancelAfter(int() | float() as seconds) if seconds >= 0:
            return seconds
    raise LocalProtocolError(f"disconnect is 'cancel', 'continue' or cancel_after(seconds), not {policy!r}")
