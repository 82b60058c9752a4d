"""What `--access` says: `directory`, `directory:URL`, or `lookup:` with a URL and where its answer has what."""

import hashlib
from collections.abc import Sequence
from typing import Final, NamedTuple

from starlette.requests import HTTPConnection

from usechat.agent_ops.access import AccessRule
from usechat.agent_ops.lookup import HttpLookup
from usechat.errors import UsechatError
from usechat.server.asking import Action, Authorize
from usechat.server.auth import bearer, identify
from usechat.server.auth_option import rules_of
from usechat.turn import Identity

__all__ = ["Admission", "UnknownAccess", "admission_by"]

_PLACES: Final = ("role", "kind", "owner")
_EXAMPLES: Final = "directory, directory:sqlite:///FILE or lookup:https://HOST/api/sessions/{id},role=PATH"


class UnknownAccess(UsechatError):
    """The text names no access rule."""


class Admission(NamedTuple):
    """Who asks, and what they may."""

    authorize: Authorize
    access: AccessRule


def admission_by(text: str, auth: Sequence[str]) -> Admission:
    """Return the rules that `--access` and `--auth` name together.

    A directory knows tokens of its own besides those of `--auth`. A look-up without `--auth` leaves it to the upstream
    whether a token is good.
    """
    kind, _, rest = text.partition(":")
    if kind == "directory":
        from usechat.agent_ops.directory import SessionDirectory, directory_url

        directory = SessionDirectory(directory_url(rest or None))
        return Admission(directory.bearer(*rules_of(auth)), directory)
    if kind == "lookup" and rest:
        return Admission(bearer(*rules_of(auth)) if auth else _ask_the_upstream, _lookup(text, rest))
    raise UnknownAccess(f"--access {text!r} is no rule; give {_EXAMPLES}")


def _lookup(text: str, rest: str) -> HttpLookup:
    url, *items = rest.split(",")
    places = dict(_place(text, item) for item in items)
    if not url.startswith(("http://", "https://")) or "{id}" not in url:
        raise UnknownAccess(f"--access {text!r} is no rule: its URL begins with https:// and has {{id}} in it")
    return HttpLookup(url, **places)


def _place(text: str, item: str) -> tuple[str, str]:
    name, _, path = item.partition("=")
    if name not in _PLACES or not path:
        raise UnknownAccess(f"--access {text!r} is no rule: {item!r} is none of {', '.join(_PLACES)} with a path")
    return name, path


async def _ask_the_upstream(request: HTTPConnection, _session_id: str, action: Action) -> Identity | None:
    """Take every token for a chat, because the look-up that follows asks the upstream about it; for nothing else."""
    identity = identify(request.headers, [_EveryToken()])
    return None if action == "check" else identity


class _EveryToken:
    def identify(self, token: str) -> Identity | None:
        return Identity(f"token {hashlib.sha256(token.encode()).hexdigest()}", token=token)
