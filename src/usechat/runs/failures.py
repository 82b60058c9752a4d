"""What people see of a failure, and what the log keeps of it."""

import logging
import secrets
from collections.abc import Callable
from typing import Final

from usechat.runs.run import RunInfo

__all__ = ["PublicError", "describe_with"]

_logger: Final = logging.getLogger("usechat.server")


class PublicError(Exception):
    """A failure whose text is meant for people: it is shown as it is."""


def describe_with(on_error: Callable[[Exception], str] | None) -> Callable[[Exception, RunInfo], str]:
    """Return the function that turns an exception into the text of the ``error`` chunk."""

    def describe(error: Exception, run: RunInfo) -> str:
        if isinstance(error, PublicError):
            return str(error)
        reference = secrets.token_hex(4)
        _logger.error(
            "run %s of chat %s failed; reference %s",
            run.run_id,
            run.chat_id,
            reference,
            exc_info=error,
            extra={"chat_id": run.chat_id, "run_id": run.run_id, "reference": reference},
        )
        try:
            if on_error is not None:
                return on_error(error)
        except Exception:  # it is user code as well
            _logger.exception("on_error failed; reference %s", reference)
        return f"An error occurred. Reference: {reference}"

    return describe
