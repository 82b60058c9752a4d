"""The names under which the pauses of a chat are kept."""

import hashlib

from usechat.turn import Turn, thread_id

__all__ = ["state_handle"]


def state_handle(turn: Turn, name: str) -> str:
    """Return the handle of a chat's pause; ``name`` tells several apart. Nothing can be read from the handle."""
    return hashlib.sha256(f"{name}/{thread_id(turn)}".encode()).hexdigest()
