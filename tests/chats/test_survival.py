"""kill -9 at any moment, and the answer goes on: finished steps are not asked again, and no tool runs twice."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import Any, Final

import httpx2
import pytest

from tests.chats.surviving import SurvivingServer
from tests.chats.talking import user
from tests.server.process import eventually
from tests.server.sockets import Body
from usechat.chats import SqlChats
from usechat.chats.recovery import NOT_ALLOWED
from usechat.ids import new_id
from usechat.protocol.sse import chunks_json
from usechat.protocol.ui_messages import UIMessage, text_of, tool_parts_of
from usechat.protocol.validation import validate_messages
from usechat.runs.settings import Disconnect
from usechat.server import Settings

pytestmark = pytest.mark.stores

Start = Callable[..., SurvivingServer]
CONSENT: Final = Settings(sdk="7", after_crash="continue")
QUESTION: Final = {"id": "c1", "messages": [user("u1", "Go")]}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a process; all use one database."""
    servers: list[SurvivingServer] = []
    database = str(tmp_path / "chats.db")

    def start_one(agent: str, **options: Any) -> SurvivingServer:
        servers.append(SurvivingServer(database, Path(f"{database}.notes"), agent, **options))
        return servers[-1]

    yield start_one
    for server in servers:
        server.kill()


def die(server: SurvivingServer) -> None:
    """Ask, and kill the process where it waits."""
    body = server.ask(QUESTION, until=lambda data: b"data-reached" in data)
    assert not body.complete, body.data


@contextmanager
def asking(server: SurvivingServer) -> Iterator[None]:
    """Ask in another thread, and yield when the agent waits; the process must end in the block."""
    with ThreadPoolExecutor() as threads:
        reached = Event()

        def note(data: bytes) -> bool:
            if b"data-reached" in data:
                reached.set()
            return False

        future = threads.submit(server.ask, QUESTION, until=note)
        try:
            assert reached.wait(60)
            yield
        finally:
            server.kill()
        assert not future.result().complete


def shut_down(server: SurvivingServer) -> None:
    """Ask, and end the process with SIGTERM where it waits: the answer does not end within the grace period."""
    with asking(server):
        server.terminate()


def is_stored(database: str, text: str) -> bool:
    """Whether a text of an answer is in the database."""
    with closing(sqlite3.connect(database)) as connection:
        rows = connection.execute("SELECT growth FROM usechat_growth UNION SELECT body FROM usechat_messages")
        return any(text in str(row) for row in rows.fetchall())


def attempts(directory: Path) -> list[int]:
    """In which attempt the answers are that have not ended."""
    with closing(sqlite3.connect(directory / "chats.db")) as connection:
        return [attempt for (attempt,) in connection.execute("SELECT attempt FROM usechat_claims")]


def begun(server: SurvivingServer) -> int:
    """How often the first step was begun."""
    return server.notes.count("model 1")


def states(message: UIMessage) -> list[str]:
    return [part["state"] for part in tool_parts_of(message)]


def outcomes(body: Body) -> list[tuple[str, str]]:
    """The failures of calls that a page is told."""
    chunks = [json.loads(chunk) for chunk in chunks_json(body.data)]
    return [(chunk["type"], chunk.get("errorText")) for chunk in chunks if chunk["type"].startswith("tool-output")]


BOTH: Final = ["output-available", "output-available"]
MATRIX: Final = {
    # where it dies: the model requests and effects of both processes, and how the calls stand
    "text 1": (["model 1", "model 1", "weather", "model 2", "book", "model 3"], BOTH),
    "text 2": (["model 1", "weather", "model 2", "model 2", "book", "model 3"], BOTH),
    "tool": (["model 1", "weather", "model 2", "book", "model 3"], ["output-available", "output-error"]),
}


@pytest.mark.parametrize("place", MATRIX)
@pytest.mark.parametrize("agent", ["loop", "pydantic"])
def test_an_answer_goes_on_after_the_restart_of_its_process(start: Start, agent: str, place: str) -> None:
    settings = CONSENT if agent == "loop" else Settings(sdk="7")
    die(start(agent, waits_at=place, settings=settings))
    second = start(agent, settings=settings)
    outcome, message = second.ended()
    assert (outcome, text_of(message)) == ("finished", "First. Second. Third.")
    assert (second.notes, states(message)) == MATRIX[place]


@pytest.mark.parametrize("place", ["text 2", "tool"])
def test_another_process_on_postgresql_goes_on_without_redis(postgres: str, tmp_path: Path, place: str) -> None:
    notes, chat_id = tmp_path / "notes", new_id()
    first = SurvivingServer(postgres, notes, "pydantic", waits_at=place)
    second = SurvivingServer(postgres, notes, "pydantic")
    try:
        assert second.stop(chat_id) == 404, "it runs already, and finds by itself that the other one is dead"
        first.ask({**QUESTION, "id": chat_id}, until=lambda data: b"data-reached" in data)
        eventually(lambda: second.notes[-1:] == ["model 3"], "it goes on although nobody looks")
        outcome, message = second.ended(chat_id)
    finally:
        first.kill()
        second.kill()
    assert (outcome, text_of(message)) == ("finished", "First. Second. Third.")
    assert (second.notes, states(message)) == MATRIX[place]


@pytest.mark.parametrize("place", MATRIX)
@pytest.mark.parametrize("agent", ["loop", "pydantic"])
@pytest.mark.parametrize("disconnect", [None, "cancel"])
def test_an_answer_that_a_shutdown_cuts_off_goes_on_as_after_a_crash(
    start: Start, agent: str, place: str, disconnect: Disconnect | None
) -> None:
    settings = Settings(sdk="7", disconnect=disconnect, after_crash="continue" if agent == "loop" else None)
    shut_down(start(agent, waits_at=place, settings=settings))
    second = start(agent, settings=settings)
    outcome, message = second.ended()
    assert (outcome, text_of(message)) == ("finished", "First. Second. Third.")
    assert (second.notes, states(message)) == MATRIX[place]


def test_an_answer_that_a_shutdown_cuts_off_is_stopped_if_it_cannot_go_on(start: Start) -> None:
    shut_down(start("loop", waits_at="text 2"))
    second = start("loop")
    outcome, message = second.ended()
    assert (outcome, text_of(message)) == ("stopped", "First. Second. ")
    assert second.notes == ["model 1", "weather", "model 2"]


def test_the_steps_of_a_function_that_a_shutdown_cuts_off_are_called_once(start: Start) -> None:
    shut_down(start("steps", waits_at="tool"))
    second = start("steps")
    assert text_of(second.ended()[1]) == "sunny. book? Third."
    assert second.notes == ["weather", "book"]


def test_a_result_that_was_stored_is_not_asked_for_again(start: Start) -> None:
    die(start("loop", waits_at="result 2", settings=CONSENT))
    second = start("loop", settings=CONSENT)
    assert states(second.ended()[1]) == BOTH
    assert second.notes == ["model 1", "weather", "model 2", "book", "model 3"]


def test_a_function_of_ones_own_is_lost_unless_somebody_consents(start: Start) -> None:
    die(start("loop", waits_at="text 2"))
    second = start("loop")
    outcome, message = second.ended()
    assert (outcome, second.notes) == ("lost", ["model 1", "weather", "model 2"])
    assert text_of(message).startswith("First. "), "what was saved of it"


def test_a_function_that_returns_a_relay_does_not_send_the_prompt_again(start: Start) -> None:
    die(start("chosen", waits_at="text 1", settings=CONSENT))
    second = start("chosen", settings=CONSENT)
    eventually(lambda: second.load()["running"] is None, "the answer has ended")
    assert second.notes == ["sent"]


def test_a_person_is_asked_about_a_tool_that_may_have_run(start: Start) -> None:
    settings = Settings(sdk="7", after_crash="ask")
    die(start("loop", waits_at="tool", settings=settings))
    second = start("loop", settings=settings)
    outcome, message = second.ended()
    assert (outcome, states(message)) == ("waiting", ["output-available", "approval-requested"])
    stored: list[Any] = list(message["parts"])
    parts = [
        {**part, "state": "approval-responded", "approval": {**part["approval"], "approved": False}}
        if part.get("state") == "approval-requested"
        else part
        for part in stored
    ]
    answered = {"id": "c1", "messages": [user("u1", "Go"), {**message, "parts": parts}]}
    chunks = [outcomes(second.ask(answered)) for _ in range(2)]
    assert chunks == [[("tool-output-error", NOT_ALLOWED)]] * 2, "a page that sends its answer again is told, too"
    outcome, message = second.ended()
    assert (outcome, states(message)) == ("finished", ["output-available", "output-error"])
    assert second.notes.count("book") == 1


@pytest.mark.parametrize("settings", [CONSENT, Settings(sdk="7")])
async def test_a_stop_before_the_crash_keeps_the_text_that_was_stored(
    start: Start, tmp_path: Path, settings: Settings
) -> None:
    database = str(tmp_path / "chats.db")
    with asking(first := start("loop", waits_at="text 2", settings=settings)):
        eventually(lambda: is_stored(database, "Second."), "the text is stored")
        first.kill()
    chats = SqlChats(database)
    await chats.order_stop("c1")  # the page's stop, of which the process did no more than this
    await chats.close()
    outcome, message = start("loop", settings=settings).ended()
    assert (outcome, text_of(message)) == ("stopped", "First. Second. ")


@pytest.mark.parametrize("agent", ["loop", "pydantic"])
def test_a_page_of_release_5_is_asked_by_a_client_tool(start: Start, agent: str) -> None:
    settings = Settings(sdk="5", after_crash="ask")
    die(start(agent, waits_at="tool", settings=settings))
    second = start(agent, settings=settings)
    outcome, message = second.ended()
    assert (outcome, states(message)) == ("waiting", ["output-available", "input-available", "input-available"])
    validate_messages([message], sdk="5")
    output = {"state": "output-available", "output": {"approved": False}}
    parts: list[Any] = list(message["parts"])
    second.ask(
        {"id": "c1", "messages": [user("u1", "Go"), {**message, "parts": [*parts[:-1], {**parts[-1], **output}]}]}
    )
    outcome, message = second.ended()
    assert (outcome, states(message)) == ("finished", ["output-available", "output-error", "output-available"])
    assert text_of(message) == "First. Second. Third."
    assert second.notes.count("book") == 1


def test_an_answer_that_waits_until_it_may_go_on_can_be_stopped(start: Start) -> None:
    settings = Settings(sdk="7", after_crash="continue", recover=1)
    with asking(first := start("loop", waits_at="result 1", settings=settings)):
        first.ask({**QUESTION, "id": "c2"}, until=lambda data: b"data-reached" in data)
    second = start("loop", waits_at="text 2", settings=settings)
    eventually(lambda: second.notes.count("model 2") == 1, "one of the answers goes on")
    assert second.stop("c2") == 204
    loaded = second.load("c2")
    assert (loaded["running"], list(loaded["outcomes"].values())) == (None, ["stopped"])
    assert text_of(loaded["messages"][-1]) == "First. "
    assert second.stop("c1") == 204
    assert second.notes.count("model 2") == 1


def test_a_stop_is_the_first_that_looks_at_the_answer_of_a_dead_process(start: Start) -> None:
    second = start("loop", waits_at="text 2", settings=CONSENT)
    assert second.stop() == 404, "it runs already, and looks for answers of the dead now and then only"
    die(start("loop", waits_at="text 2", settings=CONSENT))
    assert second.stop() == 204
    assert second.ended()[0] == "stopped"


def test_a_page_that_reads_on_is_the_first_that_looks_at_the_answer_of_a_dead_process(start: Start) -> None:
    second = start("loop", settings=CONSENT)
    assert second.stop() == 404, "it runs already, and looks for answers of the dead now and then only"
    die(start("loop", waits_at="text 2", settings=CONSENT))
    answer = httpx2.get(f"{second.url}/api/chat/c1/stream", timeout=60)
    assert answer.status_code == 200
    assert second.ended()[0] == "finished"


def test_an_answer_in_which_processes_die_without_progress_is_lost(start: Start) -> None:
    die(start("loop", waits_at="text 1", settings=CONSENT))
    for attempt in (2, 3):
        server = start("loop", waits_at="text 1", settings=CONSENT)
        eventually(lambda: begun(server) == attempt, "it goes on")  # noqa: B023 - awaited here
        server.kill()
    last = start("loop", settings=CONSENT)
    eventually(lambda: last.load()["running"] is None, "it is lost")
    assert last.notes == ["model 1"] * 3


def test_an_answer_that_shutdowns_cut_off_again_and_again_in_one_step_goes_on(start: Start) -> None:
    shut_down(start("loop", waits_at="text 1", settings=CONSENT))
    for attempt in (2, 3, 4):
        server = start("loop", waits_at="text 1", settings=CONSENT)
        eventually(lambda: begun(server) == attempt, "it goes on")  # noqa: B023 - awaited here
        server.terminate()
    outcome, message = start("loop", settings=CONSENT).ended()
    assert (outcome, text_of(message)) == ("finished", "First. Second. Third.")


def test_an_answer_that_waits_until_it_may_go_on_is_not_lost_with_the_processes_that_do_others(
    start: Start, tmp_path: Path
) -> None:
    settings = Settings(sdk="7", after_crash="continue", recover=1)
    with asking(first := start("loop", waits_at="text 1", settings=settings)):
        first.ask({**QUESTION, "id": "c2"}, until=lambda data: b"data-reached" in data)
    for attempt in (2, 3):
        server = start("loop", waits_at="text 1", settings=settings)
        eventually(lambda: begun(server) == attempt + 1, "one of the answers goes on")  # noqa: B023 - awaited here
        eventually(lambda: attempts(tmp_path) == [attempt] * 2, "the other one waits")  # noqa: B023
        server.kill()
    last = start("loop", settings=settings)
    for chat_id in ("c1", "c2"):
        eventually(lambda: last.load(chat_id)["running"] is None, "the answer has ended")  # noqa: B023
    assert "finished" in [outcome for chat_id in ("c1", "c2") for outcome in last.load(chat_id)["outcomes"].values()]


@pytest.mark.parametrize("waits_at", ["result 2", ""], ids=["it runs", "it has ended"])
def test_an_index_that_counts_chunks_of_the_dead_process_is_refused(start: Start, waits_at: str) -> None:
    first = start("loop", waits_at="text 2", settings=CONSENT)
    with (
        suppress(httpx2.TransportError),
        httpx2.stream("POST", f"{first.url}/api/chat", json=QUESTION, timeout=60) as response,
    ):
        name = response.headers["x-workflow-run-id"]
        for data in response.iter_raw():
            if b"data-reached" in data:
                first.kill()
    second = start("loop", waits_at=waits_at, settings=CONSENT)
    eventually(lambda: second.notes[-1] == ("book" if waits_at else "model 3"), "it goes on")
    if not waits_at:
        second.ended()
    for path in (name, "c1"):
        answer = httpx2.get(f"{second.url}/api/chat/{path}/stream?startIndex=3", timeout=60)
        [error] = [json.loads(chunk) for chunk in chunks_json(answer.content)]
        assert (error["type"], error["errorText"][:35]) == ("error", "The server does not have this answe")


def test_the_steps_of_a_function_are_called_once(start: Start) -> None:
    die(start("steps", waits_at="end"))
    second = start("steps")
    assert text_of(second.ended()[1]) == "sunny. booked. Third."
    assert second.notes == ["weather", "book"]


def test_a_function_goes_on_as_long_as_each_process_finishes_a_step(start: Start) -> None:
    die(start("walk", waits_at="result 1"))
    for number in (2, 3):
        server = start("walk", waits_at=f"result {number}")
        eventually(lambda: server.notes[-1] == f"behind {number}", "it goes on")  # noqa: B023 - awaited here
        server.kill()
    last = start("walk")
    assert text_of(last.ended()[1]) == "There."
    assert last.notes.count("weather") == 4


def test_a_crash_in_a_step_is_told_to_the_function(start: Start) -> None:
    die(start("steps", waits_at="tool"))
    second = start("steps")
    assert text_of(second.ended()[1]) == "sunny. book? Third."
    assert second.notes == ["weather", "book"]


def test_a_function_with_steps_gets_an_approval_again(start: Start) -> None:
    first = start("approved", waits_at="end")
    first.ask(QUESTION)
    [waiting] = [message for message in first.load()["messages"] if message["role"] == "assistant"]
    approval = {"state": "approval-responded", "approval": {"id": "a1", "approved": True}}
    page = {**waiting, "parts": [part | approval if "approval" in part else part for part in waiting["parts"]]}
    request = {"id": "c1", "messages": [user("u1", "Go"), page]}
    assert not first.ask(request, until=lambda data: b"data-reached" in data).complete
    second = start("approved")
    outcome, message = second.ended()
    assert (outcome, text_of(message)) == ("finished", "May I? sunny, True. Done.")
    [paid] = tool_parts_of(message)
    assert (paid["state"], paid["output"], paid["approval"]["approved"]) == ("output-available", "booked", True)
    assert second.notes == ["weather", "book"]


def test_a_step_that_may_run_again_does(start: Start) -> None:
    die(start("again", waits_at="tool"))
    second = start("again")
    assert text_of(second.ended()[1]) == "booked."
    key = second.notes[0]
    assert second.notes == [key, "book", key, "book"]


def test_a_tool_that_may_run_again_has_the_same_key(start: Start) -> None:
    die(start("keyed", waits_at="tool"))
    second = start("keyed")
    assert text_of(second.ended()[1]) == "First. Second. Third."
    key = second.notes[3]
    attempt = ["model 2", key, "book"]
    assert second.notes == ["model 1", "weather", *attempt, *attempt, "model 3"]
