"""Connections to a Genkit server: encrypted, moved, left early, many at once; over real sockets."""

import asyncio
import datetime
import logging
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.conformance.served import Served, serving
from tests.genkit import scripted
from tests.genkit.asking import answer, asked, text_of, until, user
from usechat.errors import StreamFailed
from usechat.genkit import GenkitChatTransport, text_input
from usechat.protocol.request import ChatRequest

ASKED: list[str] = []
LEFT: list[str] = []


async def until_left(request: Request) -> None:
    ASKED.append(request.url.path)
    while not await request.is_disconnected():  # noqa: ASYNC110 (nothing else tells it)
        await asyncio.sleep(0.005)
    LEFT.append(request.url.path)


async def silent(request: Request) -> Response:
    """Say nothing, not even a status."""
    await request.body()
    await until_left(request)
    return Response()


async def moved(_request: Request) -> Response:
    return RedirectResponse("/elsewhere")


async def echo(request: Request) -> Response:
    """Say what is asked, in pieces, so that many answers mix on the way."""
    text = (await request.json())["data"]
    frames = [f'data: {{"message":"{word} "}}\n\n' for word in ("You", "said:", text)]
    return StreamingResponse(iter([*frames, 'data: {"result":null}\n\n']))


async def large(_request: Request) -> Response:
    text = "x" * 5_000_000
    return StreamingResponse(iter([f'data: {{"message":"{text}"}}\n\n', 'data: {"result":null}\n\n']))


APP = Starlette(
    routes=[Route(f"/{handler.__name__}", handler, methods=["POST"]) for handler in (silent, moved, echo, large)]
)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving({"genkit": APP}) as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_happened_yet() -> None:
    for happened in (ASKED, LEFT, scripted.STARTED, scripted.CANCELLED):
        happened.clear()


def transport(served: Served, name: str, scheme: str = "http") -> GenkitChatTransport:
    return GenkitChatTransport(f"{scheme}://127.0.0.1:{served.port}/genkit/{name}", build_input=text_input)


async def test_a_flow_that_has_moved_is_not_followed_and_the_log_says_where_it_is(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(StreamFailed, match=r"^The agent was not found\. Tell its operators\. Reference: "):
        await answer(transport(served, "moved"), asked(user("hi")))
    assert "HTTP 307: the flow has moved to /elsewhere; give that address" in caplog.text


async def test_a_server_that_does_not_speak_http_is_in_the_log_with_its_address_and_first_bytes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example.org ESMTP\r\n\r\n")
        await writer.drain()
        await _reader.read(100_000)
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/flow"
        with pytest.raises(StreamFailed, match="broke before the answer was complete"):
            await answer(GenkitChatTransport(address), asked(user("hi")))
    assert f"the connection to {address} broke: " in caplog.text
    assert "220 mail.example.org" in caplog.text


# Encryption


@pytest.fixture(scope="module")
def own_certificate(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A certificate that nobody vouches for."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    directory = tmp_path_factory.mktemp("certificate")
    plain = serialization.NoEncryption()
    key_bytes = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    (directory / "key").write_bytes(key_bytes)
    (directory / "certificate").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return {"ssl_keyfile": directory / "key", "ssl_certfile": directory / "certificate"}


UNREACHABLE = r"^The agent cannot be reached right now\. Try again in a moment\.$"


async def test_a_certificate_that_nobody_vouches_for_is_refused(
    own_certificate: dict[str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    with serving({"genkit": APP}, **own_certificate) as served, pytest.raises(StreamFailed, match=UNREACHABLE):
        await answer(transport(served, "echo", "https"), asked(user("hi")))
    assert "CERTIFICATE_VERIFY_FAILED" in caplog.text


async def test_a_server_that_does_not_encrypt_cannot_be_reached_by_https(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), pytest.raises(StreamFailed, match=UNREACHABLE):
        await answer(transport(served, "echo", "https"), asked(user("hi")))
    assert f"cannot connect to Genkit at https://127.0.0.1:{served.port}/genkit/echo: " in caplog.text


# Leaving early


async def test_a_stop_before_the_first_chunk_closes_the_connection(served: Served) -> None:
    chunks = await transport(served, "silent").send_messages(asked(user("hi")))
    await until(lambda: ASKED)
    await chunks.aclose()  # type: ignore[attr-defined]
    await until(lambda: LEFT == ["/genkit/silent"])


async def test_a_stop_before_the_first_chunk_cancels_a_flow_in_this_process() -> None:
    chunks = await GenkitChatTransport(scripted.silent).send_messages(asked(user("hi")))
    await until(lambda: scripted.STARTED)
    await chunks.aclose()  # type: ignore[attr-defined]
    assert scripted.CANCELLED == ["flow True"]


async def test_a_stop_at_once_leaves_nothing_behind(served: Served) -> None:
    for stopped in (transport(served, "silent"), GenkitChatTransport(scripted.silent)):
        chunks = await stopped.send_messages(asked(user("hi")))
        await chunks.aclose()  # type: ignore[attr-defined]
        assert asyncio.all_tasks() == {asyncio.current_task()}


# Much, and many


async def test_a_large_chunk_comes_through(served: Served) -> None:
    assert len(text_of(await answer(transport(served, "large"), asked(user("hi"))))) == 5_000_000


@pytest.mark.parametrize("place", ["process", "server"])
async def test_twenty_chats_at_once_do_not_mix(served: Served, place: str) -> None:
    shared = GenkitChatTransport(scripted.words) if place == "process" else transport(served, "echo")

    async def one(number: int) -> str:
        request = ChatRequest.parse({"id": f"chat-{number}", "messages": [user(f"number-{number}")]})
        return text_of(await answer(shared, request)).strip()

    answers = await asyncio.gather(*map(one, range(20)))
    assert answers == [f"You said: number-{number}" for number in range(20)]
