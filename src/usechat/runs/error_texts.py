"""The text of a failure: what the page shows of it, and what the server's log holds."""

import logging
import secrets
from collections.abc import Callable
from typing import Final

from usechat.errors import PublicError
from usechat.threads import contained

__all__ = ["error_text"]

_logger: Final = logging.getLogger("usechat.server")


def error_text(
    error: BaseException,
    on_error: Callable[[Exception], str] | None,
    on_failure: Callable[[BaseException, str], None],
    *,
    run_id: str,
    chat_id: str,
) -> str:
    """Return the text of the ``error`` chunk for an exception, and log the exception with a reference.

    A :class:`~usechat.errors.PublicError` keeps its text. Otherwise ``on_error`` makes the text; without it, or if it
    fails, the text holds the reference alone. ``on_failure`` is called with the exception and the reference.
    """
    if isinstance(error, PublicError):
        return str(error)
    reference = secrets.token_hex(4)
    _logger.error(
        "run %s of chat %s failed; reference %s",
        run_id,
        chat_id,
        reference,
        exc_info=error,
        extra={"chat_id": chat_id, "run_id": run_id, "reference": reference},
    )
    on_failure(error, reference)
    try:
        if on_error is not None and isinstance(error, Exception):
            with contained():
                return on_error(error)
    except Exception:  # it is user code, too
        _logger.exception("on_error raised, so the page gets the default text; reference %s", reference)
    return f"An error occurred. Reference: {reference}"
