"""The route under load: a client that does not read, a thousand turns, an upstream that does not answer."""

import gc
import http.client
import json
import re
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.agent_ops.gateways import PATIENCE, Gateway, Upstream, eventually, gateway, upstream
from usechat.runs.keeper import CANNOT_FOLLOW


@pytest.fixture(scope="module")
def behind() -> Iterator[Upstream]:
    with upstream() as running:
        yield running


@pytest.fixture(scope="module")
def gate(behind: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with gateway(tmp_path_factory.mktemp("sessions"), behind, ("flood",)) as running:
        yield running


def resident_bytes() -> int:
    """How much memory this process, which holds the gateway and the upstream, has now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096


def request(gate: Gateway, app: str, text: str) -> bytes:
    body = {"id": "raw", "messages": [{"id": "u", "role": "user", "parts": [{"type": "text", "text": text}]}]}
    content = json.dumps(body).encode()
    head = [
        f"POST {gate.path(app, 'flood')} HTTP/1.1",
        "host: 127.0.0.1",
        f"authorization: Bearer {gate.tokens['carl']}",
        "content-type: application/json",
        f"content-length: {len(content)}",
    ]
    return "\r\n".join([*head, "", ""]).encode() + content


@pytest.mark.parametrize("app", ["client", "runner"])
def test_a_client_that_does_not_read_a_flood_is_cut_off_and_the_agent_stopped(gate: Gateway, app: str) -> None:
    session = gate.sessions[app]["flood"]
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(PATIENCE)
        client.connect(("127.0.0.1", gate.served.port))
        client.sendall(request(gate, app, "flood 50"))
        eventually(lambda: session.busy, "the flood begins")
        eventually(lambda: not session.busy and not session.clients, "the agent is stopped")
        assert [command["type"] for _, command in session.heard][-2:] == ["prompt", "abort"]
        received = b"".join(iter(lambda: client.recv(65536), b""))
    assert len(received) < 16 * 1024 * 1024
    assert received.startswith(b"HTTP/1.1 200")
    names = re.findall(rb"^event: (.*)\n", received, re.MULTILINE)
    assert names[-2:] == [b"error", b"message-finish"]
    assert f'"errorText":"{CANNOT_FOLLOW}"'.encode() in received


def test_a_client_that_reads_gets_the_whole_flood(gate: Gateway) -> None:
    answer = gate.post("client", "flood 5", session_id="flood")
    deltas = [len(chunk["delta"]) for name, chunk in answer.events if name == "text-delta"]
    assert sum(deltas) == 5 * 1024 * 1024
    assert answer.events[-1][0] == "message-finish"


def test_a_thousand_turns_one_after_the_other_leave_memory_as_it_was(gate: Gateway) -> None:
    session = gate.sessions["client"]["interactive"]
    for _ in range(100):
        assert gate.post("client", "hello").status == 200
    gc.collect()
    objects, size = len(gc.get_objects()), resident_bytes()
    for number in range(1000):
        answer = gate.post("client", f"hello {number}")
        assert [name for name, _ in answer.events][-1] == "message-finish"
    eventually(lambda: not session.clients, "every socket is closed")
    session.heard.clear()
    gc.collect()
    assert len(gc.get_objects()) - objects < 2000
    assert resident_bytes() - size < 16 * 1024 * 1024


def test_an_upstream_that_takes_connections_and_says_nothing_is_given_up(gate: Gateway) -> None:
    answer = gate.post("mute", "hello")
    assert answer.events[-2:] == [
        ("error", {"type": "error", "errorText": "Connection failed"}),
        ("message-finish", {"type": "finish"}),
    ]


def open_sockets(gate: Gateway) -> float:
    """What the metrics page tells."""
    connection = http.client.HTTPConnection("127.0.0.1", gate.served.port, timeout=PATIENCE)
    with closing(connection):
        connection.request("GET", "/client/metrics")
        page = connection.getresponse().read().decode()
    return float(re.findall(r"^adapter_ws_open (.*)$", page, re.MULTILINE)[0])


def test_open_sockets_are_told_and_a_page_that_goes_closes_its_own(gate: Gateway) -> None:
    eventually(lambda: open_sockets(gate) == 0, "the others have ended")
    with socket.create_connection(("127.0.0.1", gate.served.port), timeout=PATIENCE) as client:
        client.sendall(request(gate, "client", "slow"))
        eventually(lambda: open_sockets(gate) == 1, "the socket is counted")
    eventually(lambda: open_sockets(gate) == 0, "the socket is closed")
    assert not gate.sessions["client"]["flood"].clients
