"""Random ids, in the format of the AI SDK's ``generateId``."""

import secrets
import string
from typing import Final

__all__ = ["new_id"]

_ALPHABET: Final = (string.ascii_letters + string.digits + "AB").encode()
_OF_BYTE: Final = _ALPHABET * 4


def new_id(length: int = 16) -> str:
    """Return a random id of letters and digits, from a cryptographic source.

    >>> len(new_id())
    16
    """
    return secrets.token_bytes(length).translate(_OF_BYTE).decode()
