"""Redis as operators deploy it: a cluster of three primaries, and a primary with a replica under three Sentinels."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Any, Protocol

from tests.redis_server import PATIENCE, SERVERS, RedisServer, free_port

SERVICE = "usechat-test"
NODE_TIMEOUT = 2000
"""Milliseconds after which a node that does not answer counts as failed."""


class Deployment(Protocol):
    """What the tests need of Redis, however it is deployed."""

    @property
    def url(self) -> str: ...


def wait_for(condition: Callable[[], object], what: str) -> None:
    deadline = monotonic() + PATIENCE
    while not condition():
        assert monotonic() < deadline, f"never happened: {what}"
        sleep(0.05)


class RedisCluster:
    """Three primaries; the first has a replica."""

    def __init__(self, nodes: list[RedisServer]) -> None:
        self.nodes = nodes
        self.primary, *_, self.replica = nodes

    @property
    def url(self) -> str:
        addresses = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        return f"redis+cluster://{addresses}"

    def form(self, bus_ports: list[int]) -> None:
        clients: list[Any] = [node.client() for node in self.nodes]
        for number, client in enumerate(clients[:3]):
            client.execute_command("CLUSTER ADDSLOTSRANGE", number * 16384 // 3, (number + 1) * 16384 // 3 - 1)
        for node, bus_port in zip(self.nodes[1:], bus_ports[1:], strict=True):
            clients[0].execute_command("CLUSTER MEET", "127.0.0.1", node.port, bus_port)
        wait_for(lambda: all(len(_nodes(client)) == 4 for client in clients), "the nodes know each other")
        clients[3].execute_command("CLUSTER REPLICATE", clients[0].execute_command("CLUSTER MYID"))
        wait_for(lambda: clients[3].info("replication").get("master_link_status") == "up", "the replica follows")
        wait_for(
            lambda: all(
                client.execute_command("CLUSTER INFO")["cluster_state"] == "ok"
                and any("slave" in node["flags"] for node in _nodes(client).values())
                for client in clients
            ),
            "the cluster works",
        )
        for client in clients:
            client.close()

    def has_slot_of(self, key: str) -> bool:
        """Return whether a key is on the primary that has a replica."""
        client = self.nodes[1].client()
        try:
            return int(client.execute_command("CLUSTER KEYSLOT", key)) < 16384 // 3
        finally:
            client.close()

    def fail_over(self) -> None:
        """Kill the primary that has a replica, and wait until the replica has its place."""
        self.primary.kill()
        client = self.replica.client()
        wait_for(lambda: client.info("replication")["role"] == "master", "the replica is promoted")
        wait_for(lambda: client.execute_command("CLUSTER INFO")["cluster_state"] == "ok", "the cluster works again")
        client.close()


def _nodes(client: Any) -> dict[str, Any]:
    nodes: dict[str, Any] = client.execute_command("CLUSTER NODES")
    return nodes


@contextmanager
def redis_cluster(kind: str = "valkey") -> Iterator[RedisCluster]:
    with ExitStack() as stack:
        nodes, bus_ports = [], []
        for _ in range(4):
            directory = Path(stack.enter_context(TemporaryDirectory()))
            bus_ports.append(free_port())
            options = ("--cluster-enabled", "yes", "--cluster-port", str(bus_ports[-1]))
            timeouts = ("--cluster-node-timeout", str(NODE_TIMEOUT), "--repl-diskless-sync-delay", "0")
            node = RedisServer(SERVERS[kind], directory, *options, *timeouts)
            stack.callback(node.stop)
            node.start()
            nodes.append(node)
        cluster = RedisCluster(nodes)
        cluster.form(bus_ports)
        yield cluster


class SentinelServer(RedisServer):
    """One of the Sentinels that watch a primary."""

    def __init__(self, program: str, directory: Path, watched: int) -> None:
        super().__init__(program, directory)
        self._file = directory / "sentinel.conf"
        self._file.write_text(
            f"sentinel monitor {SERVICE} 127.0.0.1 {watched} 2\n"
            f"sentinel down-after-milliseconds {SERVICE} {NODE_TIMEOUT}\n"
            f"sentinel failover-timeout {SERVICE} 5000\n"
        )

    def _first_arguments(self) -> list[str]:
        return [str(self._file), "--sentinel"]


class WatchedRedis:
    """A primary and its replica, under three Sentinels."""

    def __init__(self, primary: RedisServer, replica: RedisServer, sentinels: list[SentinelServer]) -> None:
        self.primary = primary
        self.replica = replica
        self._sentinels = sentinels

    @property
    def url(self) -> str:
        addresses = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self._sentinels)
        return f"redis+sentinel://{addresses}/{SERVICE}"

    def wait_until_ready(self) -> None:
        clients: list[Any] = [sentinel.client() for sentinel in self._sentinels]

        def knows_all(client: Any) -> bool:
            state = client.sentinel_master(SERVICE)
            return bool(state["num-slaves"] == 1 and state["num-other-sentinels"] == 2)

        wait_for(lambda: all(map(knows_all, clients)), "the Sentinels know each other")
        for client in clients:
            client.close()

    def fail_over(self) -> None:
        """Kill the primary, and wait until the Sentinels have promoted the replica."""
        self.primary.kill()
        clients: list[Any] = [sentinel.client() for sentinel in self._sentinels]
        wait_for(
            lambda: all(client.sentinel_master(SERVICE)["port"] == self.replica.port for client in clients),
            "the replica is promoted",
        )
        for client in clients:
            client.close()


@contextmanager
def redis_sentinel(kind: str = "valkey") -> Iterator[WatchedRedis]:
    program = SERVERS[kind]
    with ExitStack() as stack:

        def started(server: RedisServer) -> None:
            stack.callback(server.stop)
            server.start()

        directories = [Path(stack.enter_context(TemporaryDirectory())) for _ in range(5)]
        primary = RedisServer(program, directories[0], "--repl-diskless-sync-delay", "0")
        started(primary)
        replica = RedisServer(program, directories[1], "--replicaof", "127.0.0.1", str(primary.port))
        started(replica)
        wait_for(lambda: _is_connected(replica), "the replica follows")
        sentinels = [SentinelServer(program, directory, primary.port) for directory in directories[2:]]
        for sentinel in sentinels:
            started(sentinel)
        watched = WatchedRedis(primary, replica, sentinels)
        watched.wait_until_ready()
        yield watched


def _is_connected(replica: RedisServer) -> bool:
    client = replica.client()
    try:
        return bool(client.info("replication").get("master_link_status") == "up")
    finally:
        client.close()
