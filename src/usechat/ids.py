"""Random ids."""

import secrets
import string
from typing import Final

__all__ = ["new_id"]

_ALPHABET: Final = (string.ascii_letters + string.digits + "AB").encode()
_OF_BYTE: Final = _ALPHABET * 4


def new_id(length: int = 16) -> str:
    """Return a random id of letters and digits, as the AI SDK makes them."""
    return secrets.token_bytes(length).translate(_OF_BYTE).decode()
