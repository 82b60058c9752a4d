"""TLS to a real upstream: a private authority, and a certificate for the client."""

import ssl
from pathlib import Path
from typing import Any

import pytest

from examples.agent_ops_session.server import serving
from tests.agent_ops.talking import DrivenTurn
from tests.certificate import write_certificate
from tests.cli.common_options import COMMON
from usechat import parts as p
from usechat.agent_ops import AgentOpsChatTransport, upstream_tls
from usechat.agent_ops.target import AgentOpsOptions, AgentOpsTarget
from usechat.errors import CannotServe, UnusableFile


@pytest.fixture
def server_file(tmp_path: Path) -> Path:
    write_certificate(tmp_path / "server.pem", host="127.0.0.1")
    return tmp_path / "server.pem"


@pytest.fixture
def client_file(tmp_path: Path) -> Path:
    write_certificate(tmp_path / "client.pem", host="client")
    return tmp_path / "client.pem"


def server_tls(certificate: Path, clients: Path | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    if clients is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(clients)
    return context


async def outcome(tls: ssl.SSLContext, client: ssl.SSLContext | None) -> p.Part | str:
    """Return how a turn ends at an upstream with these settings."""
    async with serving(tls=tls) as sessions:
        turn = DrivenTurn(AgentOpsChatTransport(sessions.url.replace("ws://", "wss://"), tls=client), "hello")
        try:
            return (await turn.end())[-1]
        except Exception:
            return await turn.failure()


async def test_a_certificate_is_checked_against_the_given_authority_and_no_other(server_file: Path) -> None:
    tls = server_tls(server_file)
    assert await outcome(tls, upstream_tls(ca=str(server_file))) == p.Finish()
    assert await outcome(tls, upstream_tls()) == "PublicError: Connection failed"
    assert await outcome(tls, None) == "PublicError: Connection failed"


async def test_an_upstream_that_wants_a_certificate_of_the_client_gets_it(server_file: Path, client_file: Path) -> None:
    tls = server_tls(server_file, clients=client_file)
    ours = upstream_tls(ca=str(server_file), certificate=str(client_file), key=str(client_file))
    assert await outcome(tls, ours) == p.Finish()
    assert await outcome(tls, upstream_tls(ca=str(server_file))) == "PublicError: Connection failed"


def test_files_that_hold_no_certificate_are_refused(tmp_path: Path, server_file: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    with pytest.raises(UnusableFile, match=r"empty\.pem is not a PEM file of certificates"):
        upstream_tls(ca=str(empty))
    with pytest.raises(UnusableFile, match=r"missing\.pem is not a PEM file of certificates: No such file"):
        upstream_tls(ca=str(tmp_path / "missing.pem"))
    with pytest.raises(UnusableFile, match=r"empty\.pem is not a certificate with its key"):
        upstream_tls(certificate=str(empty))
    with pytest.raises(UnusableFile, match=r"with the key .*empty\.pem is not a certificate with its key"):
        upstream_tls(certificate=str(server_file), key=str(empty))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"upstream_key": "k.pem"}, "--upstream-key is the key of a certificate; give --upstream-cert, too"),
        ({"upstream_ca": "ca.pem"}, "--upstream-ca and --upstream-cert are for an upstream with TLS"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], error: str) -> None:
    with pytest.raises(CannotServe, match=error):
        AgentOpsTarget().open("ws://host/api/sessions/{id}/ws", AgentOpsOptions(**options), COMMON)
