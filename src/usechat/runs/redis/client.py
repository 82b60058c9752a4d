"""One client for every kind of Redis: a server, a primary behind Sentinels, a cluster. The URL says which.

=====================================================  =================================================================
URL                                                    what it names
=====================================================  =================================================================
``redis://[user:password@]host:6379/0``                a server
``rediss://host:6380/0?ssl_ca_certs=ca.pem``           a server, over TLS
``unix:///run/redis.sock?db=0``                        a server on this machine
``redis+sentinel://host:26379,host:26379/service/0``   the primary of a service, found through its Sentinels
``redis+cluster://host:7000,host:7001``                a cluster, found through any of its nodes
=====================================================  =================================================================

``rediss+sentinel://`` and ``rediss+cluster://`` use TLS. User and password are those of the data servers; Sentinels
with a different password get it with ``?sentinel_username=…&sentinel_password=…``. Other parameters of the query are
those of redis-py's connections.

A command has one deadline, for the wait for a connection, for connecting and for the reply. A connection that breaks is
opened again and the command repeated, so a command may be executed twice.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final, Generic, TypeVar
from urllib.parse import unquote, urlsplit

from usechat.errors import InvalidAddress, MissingDependency

try:
    from redis import exceptions
    from redis.asyncio import ConnectionPool, Redis, RedisCluster
    from redis.asyncio.cluster import ClusterNode
    from redis.asyncio.connection import Connection, SSLConnection, parse_url
    from redis.asyncio.retry import Retry
    from redis.asyncio.sentinel import Sentinel
    from redis.backoff import NoBackoff
except ImportError:
    raise MissingDependency("redis", "redis") from None

__all__ = ["RedisClient"]

Reply = TypeVar("Reply")
Item = TypeVar("Item")

_REPLY_SECONDS: Final = 4.0
"""A request makes several commands, but only one of them can meet a server that has just stopped to answer; so the
response comes within five seconds."""
_NODE_SECONDS: Final = 2.0
"""A cluster and Sentinels have other nodes to ask when one does not answer."""
_CONNECTIONS: Final = 32
_BATCH: Final = 200
"""Items of one script call, during which the server answers nobody else."""
_PAUSES: Final = (0.02, 0.1, 0.3)
"""Seconds between attempts to reach a server."""
_CANCEL_AGAIN: Final = 0.1
_PORTS: Final = {"sentinel": 26379, "cluster": 6379}
_SCHEMES: Final = "redis://, rediss://, unix://, redis+sentinel:// and redis+cluster://"


class RedisClient:
    """Sends commands to the Redis that a URL names, and gives up after ``reply_seconds``.

    ``connections`` is how many commands are on their way at once; more wait. ``node_seconds`` is the time after which
    a server that is silent counts as dead; it must exceed the time that a command may block. Raises
    :class:`~usechat.errors.InvalidAddress` for a URL of another kind; its text does not repeat the URL, which may hold
    a password. Connections are opened on first use.
    """

    def __init__(
        self,
        url: str,
        *,
        reply_seconds: float = _REPLY_SECONDS,
        node_seconds: float = _NODE_SECONDS,
        connections: int = _CONNECTIONS,
    ) -> None:
        self._reply_seconds = reply_seconds
        self._free = asyncio.Semaphore(connections)
        self._abandoned: set[asyncio.Task[Any]] = set()
        """Commands that did not return before their deadline."""
        self._sentinel: Sentinel | None = None
        self._client: Any
        scheme, _, kind = urlsplit(url).scheme.partition("+")
        limits = {
            "max_connections": connections,
            "socket_connect_timeout": node_seconds,
            "socket_timeout": node_seconds,
            "protocol": 2,
        }
        self.connects = 0
        """How often a connection was opened. A command may succeed after a break, on a new connection to a server that
        lost its data. A cluster's client has no such hook, and is not counted."""
        try:
            if not kind:
                self._client = _single(url, {**limits, "redis_connect_func": self._greet})
            elif kind == "sentinel" and scheme in ("redis", "rediss"):
                self._sentinel, self._client = _watched(url, limits, self._greet)
            elif kind == "cluster" and scheme in ("redis", "rediss"):
                self._client = _cluster(url, limits)
            else:
                raise _wrong_url()
        except TypeError:
            raise InvalidAddress(
                "The query of a redis://, redis+sentinel:// or redis+cluster:// URL takes parameters of redis-py's"
                " connections, such as ssl_ca_certs, but no timeouts."
            ) from None
        self.is_cluster = kind == "cluster"
        """Whether a command may only have keys of one hash slot."""

    async def execute(self, *command: Any, within: float | None = None) -> Any:
        """Send a command and return the reply. Raises a ``RedisError`` or an ``OSError``."""
        return await self._attempt(lambda: self._client.execute_command(*command), within)

    async def pipeline(self, commands: Sequence[tuple[Any, ...]], *, within: float | None = None) -> list[Any]:
        """Send commands together and return their replies; a command that was refused has its error as the reply."""

        async def send() -> list[Any]:
            pipeline = self._client.pipeline(transaction=False)
            for command in commands:
                pipeline.execute_command(*command)
            replies: list[Any] = await pipeline.execute(raise_on_error=False)
            for place, reply in enumerate(replies if self.is_cluster else ()):
                # The pipeline of a cluster neither repeats a command nor looks for the node that has its slot now.
                if isinstance(reply, exceptions.ConnectionError | exceptions.TimeoutError | exceptions.ClusterError):
                    replies[place] = await self._client.execute_command(*commands[place])
            return replies

        return await self._attempt(send, within) if commands else []

    def batches(self, items: Iterable[Item], tag: Callable[[Item], str]) -> Iterator[list[Item]]:
        """Yield the items that one script call may treat: not too many, and in a cluster those of one hash tag."""
        if self.is_cluster:
            groups = [list(group) for _, group in groupby(sorted(items, key=tag), key=tag)]
        else:
            groups = [list(items)]
        for group in groups:
            yield from (group[begin : begin + _BATCH] for begin in range(0, len(group), _BATCH))

    async def close(self) -> None:
        """Close the connections."""
        while self._abandoned:
            for task in self._abandoned:
                task.cancel()
            await asyncio.wait(self._abandoned, timeout=_CANCEL_AGAIN)
        await self._client.aclose()
        if self._sentinel is not None:
            await self._sentinel.aclose()
        if self.is_cluster:  # after a failure redis-py's own close does nothing
            await self._client.nodes_manager.aclose()
            await self._client.nodes_manager.aclose("startup_nodes")

    async def _attempt(self, send: Callable[[], Coroutine[Any, Any, Reply]], within: float | None) -> Reply:
        seconds = self._reply_seconds if within is None else within
        attempts = Attempts(send)
        # In a separate task: redis-py may take a cancellation during a handshake for a failure, and continue waiting.
        task = asyncio.get_running_loop().create_task(attempts.run(self._free))
        try:
            done, _ = await asyncio.wait([task], timeout=seconds)
        except asyncio.CancelledError:
            self._abandon(task)
            raise
        if done:
            return task.result()
        self._abandon(task)
        raise attempts.failure or exceptions.TimeoutError(f"no reply within {seconds:g} s")

    async def _greet(self, connection: "Connection") -> None:
        self.connects += 1
        await connection.on_connect()

    def _abandon(self, task: "asyncio.Task[Any]") -> None:
        task.cancel()
        self._abandoned.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: "asyncio.Task[Any]") -> None:
        self._abandoned.discard(task)
        if not task.cancelled():
            task.exception()  # nobody waits for it, and asyncio would log it


class Attempts(Generic[Reply]):
    """Sends a command, and again if the connection breaks."""

    def __init__(self, send: Callable[[], Coroutine[Any, Any, Reply]]) -> None:
        self._send = send
        self.failure: Exception | None = None
        """What broke the last connection: a ``RedisError`` or an ``OSError``."""

    async def run(self, free: asyncio.Semaphore) -> Reply:
        """Return the reply, or raise what the last attempt raises."""
        async with free:
            for pause in _PAUSES:
                try:
                    return await self._send()
                except Exception as error:
                    self._note(error)
                await asyncio.sleep(pause)
            try:
                return await self._send()
            except Exception as error:
                self._note(error)
                raise self.failure or error from error

    def _note(self, error: Exception) -> None:
        """Note what broke a connection; raise any other error of Redis."""
        if isinstance(error, exceptions.AuthenticationError | exceptions.AuthorizationError):
            raise error
        if isinstance(error, exceptions.ConnectionError | OSError):
            self.failure = error
        elif isinstance(error, exceptions.RedisError):
            raise error
        else:
            # No node of a cluster can be reached (RedisClusterException), or redis-py uses a connection that it has
            # closed meanwhile (AttributeError).
            self.failure = exceptions.ConnectionError(f"{type(error).__name__}: {error}")


def _single(url: str, limits: dict[str, Any]) -> "Redis":
    pool = ConnectionPool(**limits, **_arguments(url), retry=_no_retry())
    pool.connection_class(**pool.connection_kwargs)  # it refuses unknown parameters, and does not connect
    return Redis.from_pool(pool)


def _watched(
    url: str, limits: dict[str, Any], greet: "Callable[[Connection], Coroutine[Any, Any, None]]"
) -> "tuple[Sentinel, Redis]":
    """Return the Sentinels, and a client of the primary that they name."""
    arguments = _plain_arguments(url)
    service, _, database = urlsplit(url).path.strip("/").partition("/")
    if not service or (database and not database.isdecimal()):
        example = "redis+sentinel://host:26379/mymaster"
        raise InvalidAddress(f"A redis+sentinel:// URL ends with the name of a service, as in {example}")
    if database:
        arguments["db"] = int(database)
    timeouts = {name: value for name, value in limits.items() if name.startswith("socket_")}
    credentials = {name: arguments.pop(f"sentinel_{name}", None) for name in ("username", "password")}
    secure = {name: value for name, value in arguments.items() if name.startswith("ssl")}
    sentinel = Sentinel(
        _nodes(url, "sentinel"), sentinel_kwargs={**timeouts, **credentials, **secure, "retry": _no_retry()}
    )
    client = sentinel.master_for(service, **limits, **arguments, redis_connect_func=greet, retry=_no_retry())
    client.connection_pool.connection_class(**client.connection_pool.connection_kwargs)
    return sentinel, client


def _cluster(url: str, limits: dict[str, Any]) -> "RedisCluster":
    nodes = [ClusterNode(host, port) for host, port in _nodes(url, "cluster")]
    # The cluster's client asks another node for the slots before each of its own retries.
    return RedisCluster(startup_nodes=nodes, **limits, **_plain_arguments(url), retry=Retry(NoBackoff(), 2))


def _nodes(url: str, kind: str) -> list[tuple[str, int]]:
    nodes = []
    for address in urlsplit(url).netloc.rpartition("@")[2].split(","):
        node = urlsplit(f"redis://{address}")
        try:
            host, port = node.hostname, node.port
        except ValueError:
            raise _wrong_url() from None
        if not host:
            raise _wrong_url()
        nodes.append((unquote(host), port or _PORTS[kind]))
    return nodes


def _plain_arguments(url: str) -> dict[str, Any]:
    """Return what the URL of a cluster or of Sentinels says about each connection: credentials, TLS, the query."""
    parts = urlsplit(url)
    scheme, user = parts.scheme.partition("+")[0], parts.netloc.rpartition("@")[0]
    arguments = _arguments(f"{scheme}://{user}@host?{parts.query}")
    del arguments["host"]
    if arguments.pop("connection_class", None) is SSLConnection:
        arguments["ssl"] = True
    return arguments


def _arguments(url: str) -> dict[str, Any]:
    try:
        return dict(parse_url(url))
    except ValueError:
        raise _wrong_url() from None


def _wrong_url() -> InvalidAddress:
    return InvalidAddress(f"A Redis URL begins with one of {_SCHEMES}, followed by a host or a path.")


def _no_retry() -> "Retry":
    """Return redis-py's policy not to repeat anything: :class:`RedisClient` does, before its deadline."""
    return Retry(NoBackoff(), 0)
