"""The benchmark of the server measures what it says: everyone streams the same deltas. Nothing is timed."""

import re
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from bench.__main__ import replace_block
from bench.__main__ import server as measure_server
from bench.machine import Circumstances
from bench.server import client as load_client
from bench.server.client import Client
from bench.server.contestants import BARE, NODE, OURS, OURS_EXTERNAL, OURS_REDIS, REDIS_VARIABLE, contestants
from bench.server.exact import Exact, Merged, keep, measure_exact
from bench.server.load import FLOOD_COUNT, Load
from bench.server.measure import QUICK, External, Figures, Paced, Redis, measure, measure_external, measure_redis
from bench.server.people import People, measure_people
from bench.server.pipeline import measure_pipeline
from bench.server.process import agents, redis, serving
from bench.server.profile import allocations, times
from bench.server.report import (
    capacity,
    crowd_table,
    exact_sentence,
    external_table,
    flood_table,
    goal_list,
    held_table,
    made_with,
    redis_table,
    report,
    stalled_sentence,
)
from bench.server.results import ServerResults
from bench.server.stalled import Stalled, measure_stalled
from bench.server.starts import HELP, IMPORT, READY, READY_WITH_CHATS, measure_starts
from bench.server.turns import BY_HAND, CHAT_APP, POSTGRES, SERVE, SQLITE, measure_turns
from tests.server.process import eventually
from usechat.protocol.chunks import TextDeltaChunk
from usechat.protocol.sse import ShortenedFrames, encode_frames

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[1]
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="the load client is compiled on use: no cc")

BODY = b'{"id":"chat","messages":[{"id":"1","role":"user","parts":[{"type":"text","text":"Why?"}]}]}'
REQUEST = (
    b"POST /flood HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\n\r\n%b" % (len(BODY), BODY)
)


def crowd(
    late: float, first: float = 19, kilobytes: float = 18, *, complete: bool = True, processor: float = 20
) -> Paced:
    return Paced(1000, 1.0, late, 2.0, first, kilobytes, processor, complete, 0.25)


def results_of(
    ours: Figures,
    *,
    redis_late: float,
    redis_rate: float,
    redis_cost: float,
    redis_held: int,
    pipeline: float,
    external_late: float,
    stalled: float,
    exact: float,
    turn: float,
    people: float,
    start: float,
) -> ServerResults:
    shared = crowd(redis_late, processor=redis_cost)
    external = Paced(300, external_late / 5 + 1, external_late + 2, 2.0, 9.0, 18, 30, True, 0.25)
    return ServerResults(
        Circumstances("2030-01-02", "a machine", "a Python", {"uvicorn": "1.0"}),
        0.02,
        pipeline,
        {
            BARE: Figures([900, 1000], crowd(5), {1: 200_000.0, 100: 200_000.0}, 9.0),
            OURS: ours,
            "peer": Figures([500], crowd(60), {1: 50_000.0, 100: 40_000.0}, 300.0),
        },
        Redis(shared, crowd(2), {1: 1.0, 100: redis_rate}, shared, crowd(2), [redis_held], [900, 1000]),
        External(external, crowd(2)),
        Stalled(20, 8.0, 4.0, stalled),
        Exact(20_000, 1_100_000, 113_000, round(40_000 * exact), 3.0, 3.0 + 10 * exact, 28.5),
        {BY_HAND: 0.5, CHAT_APP: turn, SERVE: turn, SQLITE: 3 * turn, POSTGRES: 4 * turn},
        People(100, 10, people, 0.02),
        {IMPORT: start, HELP: start, READY: start, READY_WITH_CHATS: start},
    )


GOOD = results_of(
    Figures([1000, 900], crowd(9.9, processor=17), {1: 100_000.0, 100: 150_000.0}, 49.9),
    redis_late=11.9,
    redis_rate=20_000,
    redis_cost=28,
    redis_held=800,
    pipeline=1.5,
    external_late=24,
    stalled=4.0,
    exact=1.0,
    turn=1.0,
    people=0.06,
    start=0.065,
)
BAD = results_of(
    Figures([499], crowd(10, first=20, kilobytes=18.1, processor=17.1), {1: 100_000.0, 100: 149_000.0}, 50.0),
    redis_late=12,
    redis_rate=19_000,
    redis_cost=28.2,
    redis_held=799,
    pipeline=1.6,
    external_late=25,
    stalled=4.1,
    exact=1.01,
    turn=1.01,
    people=0.0602,
    start=0.721,
)


@pytest.fixture(params=[name for name in contestants() if name != NODE])
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    with serving(request.param) as server:
        yield server.port


async def test_texts_payloads_and_frames_say_the_same() -> None:
    load = Load("flood")
    texts = [text async for text in load.texts()]
    payloads = [payload async for payload in load.payloads()]
    frames = [frame async for frame in load.frames()]
    assert len(texts) == FLOOD_COUNT
    assert all(text.count("@") == 1 for text in texts)
    assert payloads == [f'{{"type":"text-delta","id":"text-1","delta":"{text}"}}' for text in texts]
    assert frames == [f"data: {payload}\n\n".encode() for payload in payloads]


async def test_a_paced_delta_tells_when_it_was_due() -> None:
    paced = Load("paced").texts()
    first, second = await anext(paced), await anext(paced)
    await paced.aclose()
    assert re.fullmatch(r"@\d{16}", first)
    assert int(second[1:]) - int(first[1:]) == 1_000_000_000 // 30


def test_everyone_floods_with_every_delta(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(REQUEST)
        received = b"".join(iter(lambda: connection.recv(65536), b""))
    assert received.startswith(b"HTTP/1.1 200")
    assert received.count(b"@") == FLOOD_COUNT


@needs_compiler
def test_the_client_reads_paced_streams_and_notices_those_that_break() -> None:
    with serving(OURS) as server:
        with Client(server.port) as client:
            client.open(3, per_second=100)
            while len(client.first) < 3 or client.deltas < 12:
                client.read(0.05)
            assert client.open_streams == 3
            assert client.broken == 0
            assert len(client.late) == client.deltas
        client = Client(server.port)
        client.open(1, per_second=100)

    def is_noticed() -> bool:
        client.read(0.05)
        return client.broken > 0

    eventually(is_noticed, "the end of the server")
    assert client.broken == 1
    client.close()


@needs_compiler
def test_a_refused_request_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, Client(listener.getsockname()[1]) as client:
        client.open(1, per_second=100)
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 503 Service Unavailable\r\n\r\n")
            with pytest.raises(RuntimeError, match="503"):
                client.read(30)


@needs_compiler
def test_a_quick_measurement_of_ours_and_of_ours_with_redis(capsys: pytest.CaptureFixture[str]) -> None:
    figures, shared, external = measure(OURS, QUICK), measure_redis(QUICK), measure_external(QUICK)
    assert figures.flood.keys() == shared.flood.keys() == {2}
    assert figures.thousand.streams == 5
    assert shared.paced.streams == shared.paced_in_memory.streams == 2
    assert shared.crowd.streams == 5
    assert external.external.streams == external.direct.streams == 2
    assert len(shared.held) == len(shared.held_in_memory) == 1
    assert measure_pipeline(rounds=1, deltas=10) > 0
    assert f"{OURS}: holds" in capsys.readouterr().err


@needs_compiler
def test_agents_in_another_process_answer() -> None:
    with redis() as url:
        variables = {REDIS_VARIABLE: url}
        with agents(variables), serving(OURS_EXTERNAL, variables) as server, Client(server.port) as client:
            client.open(2, per_second=100)
            while client.deltas < 4:
                client.read(0.05)
            assert client.broken == 0


@needs_compiler
def test_a_flood_is_asked_for_again_when_it_has_ended() -> None:
    with serving(OURS) as server, Client(server.port, "flood") as client:
        client.open(1, per_second=100)
        while client.deltas < 2 * FLOOD_COUNT:
            client.read(0.05)
        assert len(client.first) >= 2
        assert client.broken == 0


def test_without_a_compiler_the_benchmark_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    load_client.library.cache_clear()
    measure_server(quick=True)
    assert "install a C compiler (cc), or name one with CC" in capsys.readouterr().err


@needs_compiler
def test_the_redis_log_is_written_where_it_is_told() -> None:
    with redis() as url, serving(OURS_REDIS, {REDIS_VARIABLE: url}) as server, Client(server.port) as client:
        client.open(1, per_second=100)
        while client.deltas < 2:
            client.read(0.05)
        assert client.broken == 0


def test_a_run_that_meets_every_goal() -> None:
    assert goal_list(GOOD).splitlines() == [
        "- met: streams held, at least 1.0x the bare ASGI app: 1.00x",
        "- met: streams held, ahead of every peer (the best is peer): 2.00x",
        "- met: at 1,000 streams p99 under 10 ms: 9.9 ms",
        "- met: at 1,000 streams first delta p99 under 20 ms: 19.0 ms",
        "- met: at 1,000 streams at most 17 µs of CPU a delta: 17.0 µs",
        "- met: at 1,000 streams at most 18 KB each: 18.0 KB",
        "- met: a ramp of 800 streams a second, first delta p99 under 50 ms: 49.9 ms",
        "- met: flood of 100 streams, at least 150,000 deltas/s: 150,000/s",
        "- met: inside the process at most 1.5 µs per delta: 1.50 µs",
        "- met: with the Redis log at least 20,000 deltas/s: 20,000/s",
        "- met: the Redis log adds less than 10 ms to the p99: 9.9 ms",
        *["- met: at 1,000 streams a delta costs at most 1.4x with the Redis log: 1.40x"] * 2,
        "- met: streams held with the Redis log, at least 0.8x: 0.80x",
        "- met: agents in another process, 300 streams: adds less than 5 ms to the p50: 4.8 ms",
        "- met: agents in another process, 300 streams: adds less than 25 ms to the p99: 24.0 ms",
        "- met: 20 stalled readers of a run of 8 MB, with it, take its size once at most: 1.00x",
        "- met: exact chunks: the length of a delta takes at most 2 bytes: 2.00",
        "- met: exact chunks: at most 0.5 µs of CPU more a delta: 0.50 µs",
        "- met: a turn costs at most 2x a route written by hand (usechat: ChatApp): 2.00x",
        "- met: a turn costs at most 2x a route written by hand (usechat serve, chats in memory): 2.00x",
        "- met: a turn costs at most 3 ms of CPU (usechat serve, chats in SQLite): 3.00 ms",
        "- met: a turn costs at most 4 ms of CPU (usechat serve, chats in PostgreSQL): 4.00 ms",
        "- met: 100 people who chat (PostgreSQL, Redis, metrics) cost at most 3x a route written by hand: 3.00x",
        "- met: import usechat: at most 0.065 s of CPU: 0.065 s",
        "- met: usechat --help: at most 0.09 s of CPU: 0.065 s",
        "- met: usechat serve: at most 0.42 s of CPU: 0.065 s",
        "- met: usechat serve --chats chats.db: at most 0.72 s of CPU: 0.065 s",
    ]


def test_a_run_that_misses_every_goal() -> None:
    lines = goal_list(BAD).splitlines()
    assert [line.partition(":")[0] for line in lines] == ["- MISSED"] * 28


def test_a_crowd_whose_deltas_are_missing_is_not_held() -> None:
    assert crowd(49).held
    assert not crowd(50).held
    assert not crowd(1, complete=False).held


def test_of_several_measurements_the_best_counts() -> None:
    first = Figures([900], crowd(30, first=10), {1: 5.0, 100: 7.0}, 8.0)
    second = Figures([1000], crowd(20, first=15), {1: 6.0, 100: 4.0}, 9.0)
    assert first.and_again(second) == Figures([900, 1000], second.thousand, {1: 6.0, 100: 7.0}, 8.0)


def test_tables_rank_and_compare() -> None:
    assert held_table(GOOD).splitlines()[2:] == [
        "| bare ASGI app, prebuilt bytes |   1,000 | 900, 1,000 |   1.00 |      1.00 |",
        "| usechat: ChatApp              |   1,000 | 1,000, 900 |   1.00 |      1.00 |",
        "| peer                          |     500 |        500 |   0.50 |      0.50 |",
    ]
    assert flood_table(GOOD).splitlines()[2:] == [
        "| bare ASGI app, prebuilt bytes |   200,000 |     200,000 |      1.00 |        1.00 |",
        "| usechat: ChatApp              |   100,000 |     150,000 |      0.50 |        0.75 |",
        "| peer                          |    50,000 |      40,000 |      0.25 |        0.20 |",
        "| usechat: ChatApp, Redis log   |         1 |      20,000 |      0.00 |        0.10 |",
    ]
    assert "| peer                          |   1,000 |   no |    1.0 |   60.0 |" in crowd_table(GOOD)
    assert redis_table(GOOD).splitlines()[-1] == "Streams held: 800 with the log in Redis, 1,000 without."


def test_tables_of_ours_in_other_shapes() -> None:
    names = [row.split("|")[1].strip() for row in external_table(GOOD).splitlines()[2:]]
    assert names == [OURS, OURS_EXTERNAL]
    assert external_table(GOOD).splitlines()[2].endswith("|         20.0 |    25% |")
    assert stalled_sentence(GOOD) == (
        "An answer of 8 MB takes 4.0 MB of memory; 20 readers that resume it and take nothing add 4.0 MB."
    )


def test_what_exact_chunks_cost_is_said_of_one_run() -> None:
    assert exact_sentence(GOOD) == (
        "A run of 20,000 deltas has 1,100 KB as it was sent, and 113 KB as it is kept; the lengths of its deltas add"
        " 40 KB. To keep it takes 13.0 ms of CPU with the lengths and 3.0 ms without; to send its second half to a"
        " client that goes on there, 28.5 ms."
    )


def test_a_page_without_a_block_for_a_part_is_named(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text("<!-- latest core run -->\nold\n<!-- end -->\n")
    with pytest.raises(ValueError, match=r"README.md has 0 blocks for the latest run of server, and needs one"):
        replace_block(page, "server", "new")
    assert "old" in page.read_text()


@pytest.mark.parametrize("results", sorted((ROOT / "bench" / "results").glob("*.json")), ids=lambda path: path.stem)
def test_the_page_of_the_benchmark_has_a_block_for_every_part(results: Path, tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text((ROOT / "bench" / "README.md").read_text(encoding="utf-8"), encoding="utf-8")
    replace_block(page, results.stem, "a new run")
    assert page.read_text(encoding="utf-8").count("a new run") == 1


def test_the_page_for_operators_gets_the_capacity(tmp_path: Path) -> None:
    page = tmp_path / "operate.md"
    page.write_text("before\n<!-- latest server run -->\nold\n<!-- end -->\nafter\n")
    replace_block(page, "server", capacity(GOOD))
    assert page.read_text().splitlines() == [
        "before",
        "<!-- latest server run -->",
        "Measured on 2030-01-02 (a machine, a Python), with 30 deltas a second in every stream:",
        "",
        "|                                             |         |",
        "| ------------------------------------------- | ------: |",
        "| streams that one core holds                 |   1,000 |",
        "| the same with the log in Redis              |     800 |",
        "| memory of an open stream                    | 18.0 KB |",
        "| open streams per GB                         |  58,254 |",
        "| added by agents in another process, p50     |  4.8 ms |",
        "| added by agents in another process, p99     | 24.0 ms |",
        "| people on one core, who each ask every 10 s |   1,667 |",
        "<!-- end -->",
        "after",
    ]
    assert "<!-- latest server run -->" in (ROOT / "docs" / "operate.md").read_text(encoding="utf-8")


def test_twenty_stalled_readers_and_the_run_take_its_size_once_at_most() -> None:
    measured = measure_stalled(readers=20, megabytes=4)
    assert (measured.readers, measured.answer) == (20, 4.0)
    assert measured.log < 2, "the log is in a file"
    assert measured.log + measured.added < 4


def test_the_lengths_of_deltas_are_measured_beside_a_log_without_them() -> None:
    measured = measure_exact(deltas=300, rounds=1, least=0)
    assert measured.deltas == 300
    assert measured.sent > 5 * measured.compact
    assert 290 < measured.lengths < 310
    assert min(measured.merged, measured.kept, measured.resumed) > 0
    pieces = [encode_frames([TextDeltaChunk("t1", "one "), TextDeltaChunk("t1", "two ")])] * 2
    with_lengths, without = keep(ShortenedFrames, pieces), keep(Merged, pieces)
    assert bytes(with_lengths) == bytes(without)
    assert (len(with_lengths.cuts), len(without.cuts)) == (3, 0)


def test_a_turn_is_measured_beside_a_route_that_is_written_by_hand() -> None:
    costs = measure_turns(turns=2, rounds=1)
    assert list(costs) == [BY_HAND, CHAT_APP, SERVE, SQLITE, POSTGRES]
    assert min(costs.values()) > 0


def test_people_who_chat_are_measured_beside_a_route_that_is_written_by_hand() -> None:
    measured = measure_people(people=2, period=3, turns=1)
    assert min(measured.ours, measured.by_hand) > 0
    assert (measured.people, measured.period) == (2, 3)


def test_starts_are_measured_until_a_server_can_take_requests() -> None:
    seconds = measure_starts(rounds=1)
    assert list(seconds) == [IMPORT, HELP, READY, READY_WITH_CHATS]
    assert 0 < seconds[IMPORT] < seconds[READY]


def test_the_profile_tells_the_time_of_a_delta_and_the_memory_of_a_stream() -> None:
    durations = times(6, windows=1)
    assert {name for name, microseconds in durations.items() if microseconds > 0} == {BARE, OURS}
    allocated = allocations(OURS, 6)
    assert 0.1 < allocated["usechat.runs.run"] < 10
    assert 1 < sum(allocated.values()) < 1000


def test_a_busy_machine_is_told() -> None:
    circumstances = "2030-01-02, a machine, a Python; uvicorn 1.0. Meanwhile other processes took "
    assert made_with(GOOD) == f"{circumstances}2% of the machine."
    busy = msgspec.structs.replace(GOOD, others=0.5)
    assert made_with(busy) == f"{circumstances}50% of the machine: it was busy, so run it again."
    assert report(busy).startswith("# The server, side by side\n")
