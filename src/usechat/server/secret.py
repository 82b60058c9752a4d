"""The secret that signs what the client must answer, where the settings name none."""

import secrets

__all__ = ["own_secret", "share_secret"]

_secret = secrets.token_urlsafe(32)


def own_secret() -> str:
    """Return the secret of this process; nobody else knows it, and it is gone with the process."""
    return _secret


def share_secret(secret: str) -> None:
    """Let this process sign with a secret that all workers have."""
    global _secret  # noqa: PLW0603 (one per process is what it is)
    _secret = secret
