"""Report why Redis cannot be used, and the remedy: one log line per cause and outage."""

import logging
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from redis import exceptions
from redis.asyncio.sentinel import MasterNotFoundError

__all__ = ["RedisHealth"]

_logger: Final = logging.getLogger("usechat.runs")
_LONGEST: Final = 200
"""Characters of an error's text in the log."""


class _Cause(NamedTuple):
    """A way in which Redis fails: how to recognise it, what it is, and what helps.

    An error that a script meets may arrive as a plain ``ResponseError`` with the code somewhere in its text.
    """

    types: tuple[type[Exception], ...]
    codes: tuple[str, ...]
    what: str
    remedy: str


_CAUSES: Final = (
    _Cause(
        (exceptions.AuthenticationError,),
        ("WRONGPASS", "NOAUTH", "AUTH <password>"),
        "it refuses the password, or wants one and the URL has none",
        "put user and password into the URL, as in redis://user:password@host:6379",
    ),
    _Cause(
        (exceptions.NoPermissionError, exceptions.AuthorizationError),
        ("NOPERM", "ACL failure"),
        "the user of the URL may not run a command that is needed",
        "allow it with ACL SETUSER: +@read +@write +@connection +@scripting +time, on the keys of the prefix",
    ),
    _Cause(
        (),
        ("unknown command", "Unknown Redis command"),
        "it does not know a command that is needed",
        "use Redis 6.2, Valkey, or newer, with EVAL and the stream commands neither renamed nor disabled",
    ),
    _Cause(
        (exceptions.ReadOnlyError,),
        ("READONLY",),
        "it is a replica and accepts no writes",
        "name the primary in the URL, or its Sentinels with redis+sentinel://",
    ),
    _Cause(
        (exceptions.OutOfMemoryError,),
        ("OOM ",),
        "its memory is full",
        "raise its maxmemory, or let it forget earlier (RedisRuns(remember=…))",
    ),
    _Cause((exceptions.BusyLoadingError,), ("LOADING",), "it is loading its data", "wait until it has loaded"),
    _Cause(
        (),
        ("MISCONF",),
        "it accepts no writes because it cannot save them to disk",
        "free or repair its disk; its own log says more",
    ),
    _Cause(
        (),
        ("NOREPLICAS",),
        "it accepts no writes because too few replicas are connected",
        "start its replicas, or lower its min-replicas-to-write",
    ),
    _Cause(
        (exceptions.ClusterDownError,),
        ("CLUSTERDOWN", "MASTERDOWN"),
        "a part of its data has no primary",
        "start the node that failed, or promote its replica with CLUSTER FAILOVER TAKEOVER",
    ),
    _Cause((), ("BUSY ",), "a script of another client blocks it", "end that script with SCRIPT KILL"),
    _Cause(
        (MasterNotFoundError,),
        (),
        "no Sentinel knows a primary of this service",
        "check that the Sentinels of the URL run, and the name of the service",
    ),
    _Cause(
        (exceptions.TimeoutError, TimeoutError),
        (),
        "it does not answer in time",
        "see whether it is paused or overloaded, and whether the network drops packets",
    ),
    _Cause(
        (exceptions.ConnectionError, OSError),
        (),
        "it cannot be reached",
        "see whether it runs, and check scheme, host and port of the URL",
    ),
)
_OTHER: Final = _Cause(
    (), (), "it refused a command", "report this error, if the server is Redis 6.2, Valkey, or newer"
)


class RedisHealth:
    """Logs what keeps Redis from working: every cause once, until Redis works again, which is logged, too."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._address = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        self._logged: set[_Cause] = set()

    def failed(self, error: BaseException) -> None:
        """Log an error of Redis, unless one of the same cause was logged in this outage."""
        cause = _cause_of(error)
        if cause not in self._logged:
            self._logged.add(cause)
            text = " ".join(str(error).split())[:_LONGEST]
            _logger.error(
                "Redis at %s cannot be used: %s; %s (%s: %s)",
                self._address,
                cause.what,
                cause.remedy,
                type(error).__name__,
                text,
            )

    def worked(self) -> None:
        """Note that Redis has accepted a write."""
        if self._logged:
            self._logged.clear()
            _logger.info("Redis at %s works again", self._address)


def _cause_of(error: BaseException) -> _Cause:
    text = str(error)
    for cause in _CAUSES:
        if isinstance(error, cause.types) or any(code in text for code in cause.codes):
            return cause
    return _OTHER
