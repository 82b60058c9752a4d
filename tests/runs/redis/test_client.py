"""The client of every kind of Redis: the URL says which, and a command has one deadline."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeout

from tests.certificate import write_certificate
from tests.redis_server import PATIENCE, SERVERS, RedisServer, redis_server
from tests.runs.redis_stores import RUN
from usechat.errors import InvalidAddress
from usechat.runs.redis.client import RedisClient
from usechat.runs.redis.scripts import TAGS, Keys


@pytest.fixture
async def client(own_server: RedisServer) -> AsyncIterator[RedisClient]:
    redis_client = RedisClient(own_server.url, reply_seconds=0.5)
    yield redis_client
    await redis_client.close()


async def test_a_socket_of_this_machine_is_named_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "redis.sock"
    with redis_server(next(iter(SERVERS)), "--unixsocket", str(path)):
        client = RedisClient(f"unix://{path}?db=1")
        assert await client.execute("SET", "key", "value") in (True, b"OK")
        assert await client.execute("GET", "key") == b"value"
        await client.close()


async def test_a_connection_that_broke_between_two_commands_is_counted_when_it_is_opened_again(
    own_server: RedisServer,
) -> None:
    client, other = RedisClient(own_server.url), RedisClient(own_server.url)
    assert client.connects == 0
    await client.execute("PING")
    await client.execute("PING")
    assert client.connects == 1
    await other.execute("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    await client.execute("PING")
    assert client.connects == 2
    await client.close()
    await other.close()


async def test_a_server_has_a_password_and_databases() -> None:
    with redis_server(next(iter(SERVERS)), password="p@ss/word") as server:
        third, first = (RedisClient(f"redis://:p%40ss%2Fword@127.0.0.1:{server.port}/{db}") for db in (3, 0))
        await third.execute("SET", "key", "value")
        assert [await client.execute("GET", "key") for client in (third, first)] == [b"value", None]
        await third.close()
        await first.close()


@asynccontextmanager
async def over_tls(port: int, certificate: Path) -> AsyncIterator[int]:
    """Accept TLS and forward what it protects to a port; the tests' server may be built without TLS."""

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(65536):
            writer.write(piece)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(forward(reader, inner_writer), forward(inner_reader, writer))

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context) as server:
        yield server.sockets[0].getsockname()[1]


async def test_tls_is_spoken_and_certificates_are_checked(own_server: RedisServer, tmp_path: Path) -> None:
    certificate = tmp_path / "server.pem"
    write_certificate(certificate)
    async with over_tls(own_server.port, certificate) as port:
        trusted, untrusted = (
            RedisClient(f"rediss://127.0.0.1:{port}?ssl_check_hostname=no{trust}", reply_seconds=5)
            for trust in (f"&ssl_ca_certs={certificate}", "")
        )
        assert await trusted.execute("INCR", "key") == 1
        with pytest.raises(RedisError, match="CERTIFICATE_VERIFY_FAILED"):
            await untrusted.execute("INCR", "key")
        await trusted.close()
        await untrusted.close()


@pytest.mark.parametrize(
    "url",
    [
        "localhost:6379",
        "http://localhost",
        "unix+cluster:///run/redis.sock",
        "redis+nothing://localhost",
        "redis+cluster://",
        "redis+cluster://host:port",
        "redis+sentinel://localhost:26379",
        "redis+sentinel://localhost:26379/service/first",
        "redis://localhost?db=first",
        "redis://localhost?first=1",
        "redis+sentinel://localhost/service?first=1",
        "redis+cluster://localhost?first=1",
        "redis://localhost?socket_timeout=1",
    ],
)
def test_other_urls_are_refused_without_repeating_them(url: str) -> None:
    with pytest.raises(InvalidAddress, match=r"redis\+sentinel://") as refused:
        RedisClient(url)
    assert "first" not in str(refused.value)


async def test_refused_commands_of_a_pipeline_have_their_error_as_the_reply(client: RedisClient) -> None:
    commands = [("INCR", "a"), ("LPUSH", "a", "b"), ("INCR", "a")]
    first, refused, last = await client.pipeline(commands, within=PATIENCE)
    assert (first, last) == (1, 2)
    assert isinstance(refused, ResponseError)
    assert await client.pipeline([]) == []


async def test_a_command_without_a_reply_fails_at_its_deadline(client: RedisClient, own_server: RedisServer) -> None:
    await client.execute("PING", within=PATIENCE)
    own_server.pause()
    begin = asyncio.get_running_loop().time()
    for _ in range(2):  # over the open connection, and over a new one
        with pytest.raises(RedisTimeout, match=r"no reply within 0\.5 s"):
            await client.execute("PING")
    assert asyncio.get_running_loop().time() - begin < 5
    own_server.go_on()
    assert await client.execute("PING", within=PATIENCE)


async def test_more_commands_than_connections_wait(own_server: RedisServer) -> None:
    client = RedisClient(own_server.url, connections=2)
    assert await asyncio.gather(*[client.execute("INCRBY", f"k{number}", number) for number in range(50)]) == list(
        range(50)
    )
    await client.close()


def test_all_keys_of_a_run_share_a_hash_tag() -> None:
    keys = Keys("mine")
    tags = {key[key.index("{") : key.index("}")] for key in (keys.chat("c1"), keys.log(RUN), keys.readers(RUN))}
    assert len(tags) == 1
    assert len({keys.tag(f"c{number}") for number in range(2000)}) == TAGS
