"""What the route writes under load, byte by byte; how clients take it is in the conformance tests."""

import http.client
import json
import re
import socket
from collections.abc import Iterator
from contextlib import closing

import httpx2
import pytest

from tests.agent_ops.gateways import PATIENCE, Gateway, Upstream, eventually, gateway, upstream
from tests.server.process import question
from usechat.runs.run import CANNOT_FOLLOW


@pytest.fixture(scope="module")
def behind() -> Iterator[Upstream]:
    with upstream() as running:
        yield running


@pytest.fixture(scope="module")
def gate(behind: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with gateway(tmp_path_factory.mktemp("sessions"), behind, ("flood",)) as running:
        yield running


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
        # From here on a client that reads in time gets the last words.
        eventually(
            lambda: [command["type"] for _, command in list(session.commands)][-2:] == ["prompt", "abort"],
            "the agent is stopped",
        )
        received = b"".join(iter(lambda: client.recv(65536), b""))
        eventually(lambda: not session.busy and not session.clients, "the socket is closed")
    assert len(received) < 16 * 1024 * 1024
    assert received.startswith(b"HTTP/1.1 200")
    chunks = [json.loads(data) for data in re.findall(rb"^data: (\{.*)\n", received, re.MULTILINE)]
    assert chunks[-2:] == [{"type": "error", "errorText": CANNOT_FOLLOW}, {"type": "finish"}]
    deltas = {len(chunk["delta"]) for chunk in chunks if chunk["type"] == "text-delta"}
    assert deltas == {16 * 1024}, "whole frames are dropped, never parts of one"


def test_a_client_that_reads_gets_the_whole_flood(gate: Gateway, behind: Upstream) -> None:
    url, last_event = gate.url("client", "flood"), [""]

    def noted(lines: Iterator[str]) -> Iterator[str]:
        for line in lines:
            last_event[:] = [line] if line.startswith("event: ") else last_event
            yield line

    with httpx2.stream("POST", url, headers=gate.headers(), json=question("hang"), timeout=PATIENCE) as answer:
        came = behind.speak_in_step(gate.sessions["client"]["flood"], noted(answer.iter_lines()), 5)
    assert (came, last_event) == (5 * 1024 * 1024, ["event: message-finish"])


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
    eventually(lambda: not gate.sessions["client"]["flood"].clients, "the session knows")
