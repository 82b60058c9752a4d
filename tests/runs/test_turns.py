"""A queued turn: what a web process writes is what an agent process reads."""

import msgspec
import pytest

from usechat.protocol.request import ChatRequest
from usechat.runs.open_calls import OpenCall, secret_of_chat
from usechat.runs.quotas import Quotas
from usechat.runs.run import RunInfo, RunState
from usechat.runs.turns import Dispatcher, QueuedTurn, TurnStatistics
from usechat.turn import Identity, TurnInput

INFO = RunInfo("r1", "c1", "m1", "7", "u1", "ada", open_calls=(OpenCall("t1", "look", "digest"),))
MESSAGES = [
    {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "hi", "unknown": 1}], "metadata": {"a": None}}
]
REQUEST = ChatRequest.parse({"id": "c1", "messages": MESSAGES, "model": "m"})


class Queue:
    """Keeps what was offered."""

    forwarded_headers: tuple[str, ...] = ("accept-language", "x-tenant")
    patience = 120.0

    def __init__(self) -> None:
        self.offered: list[tuple[QueuedTurn, str]] = []

    async def admit(self) -> None:
        """Let everybody in."""

    async def offer(self, turn: QueuedTurn, *, after: str) -> RunInfo | None:
        self.offered.append((turn, after))
        return None

    async def withdraw(self, info: RunInfo) -> bool:
        return info is INFO

    async def statistics(self) -> TurnStatistics:
        return TurnStatistics()


@pytest.mark.parametrize(
    "turn",
    [
        pytest.param(QueuedTurn(INFO, TurnInput(REQUEST)), id="the least"),
        pytest.param(
            QueuedTurn(
                INFO,
                TurnInput(
                    msgspec.structs.replace(REQUEST, pending_calls=frozenset({"t1", "t2"})),
                    identity=Identity("ada", {"role": "admin", "groups": ["a"]}, "a-token"),
                    headers={"accept-language": "de"},
                    path_params={"project": "p1"},
                    query={"sdk": "7"},
                ),
                secret="s3cret",
                quotas=Quotas(requests_per_minute=3, bytes_per_day=5),
                recording={"claim": {"run_id": "r1"}},
            ),
            id="everything",
        ),
        pytest.param(
            QueuedTurn(INFO, TurnInput(ChatRequest(messages=[{"id": "u\ud800", "role": "user", "parts": []}]))),
            id="half a character",
        ),
    ],
)
def test_what_is_written_is_what_is_read(turn: QueuedTurn) -> None:
    assert QueuedTurn.decode(turn.encode()) == turn


def test_fields_that_a_later_release_adds_are_ignored() -> None:
    turn = QueuedTurn(INFO, TurnInput(REQUEST, Identity("ada")))
    fields = msgspec.json.decode(turn.encode())
    for each in (fields, fields["info"], fields["request"], fields["identity"], fields["quotas"]):
        each["later"] = 1
    assert QueuedTurn.decode(msgspec.json.encode(fields)) == turn


@pytest.mark.parametrize("data", [b"", b"{}", b'{"info": 1}'])
def test_anything_else_is_an_error(data: bytes) -> None:
    with pytest.raises((ValueError, KeyError)):
        QueuedTurn.decode(data)


async def test_only_the_headers_on_the_list_leave_the_web_process() -> None:
    queue = Queue()
    headers = {"accept-language": "de", "authorization": "Bearer secret", "cookie": "secret"}
    turn_input = TurnInput(REQUEST, Identity("ada"), headers, query={"q": "1"})
    dispatcher = Dispatcher(queue, approval_secret="s3cret", quotas=Quotas(concurrent_runs=1))
    assert await dispatcher.offer(INFO, turn_input, after="r0") is None
    [(queued, after)] = queue.offered
    assert (queued.input.headers, queued.input.query, after) == ({"accept-language": "de"}, {"q": "1"}, "r0")
    assert queued.quotas == Quotas(concurrent_runs=1)


async def test_the_secret_of_a_chat_leaves_the_web_process_and_the_secret_of_all_chats_does_not() -> None:
    queue = Queue()
    dispatcher = Dispatcher(queue, approval_secret="s3cret", quotas=Quotas())
    await dispatcher.offer(INFO, TurnInput(REQUEST), after="")
    assert queue.offered[0][0].secret == secret_of_chat("s3cret", "c1", "ada")
    assert b"s3cret" not in queue.offered[0][0].encode()


def test_a_restarted_run_is_of_the_same_turn() -> None:
    again = msgspec.structs.replace(INFO, run_id="r2", origin="r1")
    third = msgspec.structs.replace(INFO, run_id="r3", origin="r1")
    other = msgspec.structs.replace(INFO, run_id="r4", state=RunState.LOST)
    assert [each.is_same_turn(again) for each in (INFO, again, third, other)] == [True, True, True, False]
