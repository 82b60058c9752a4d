"""The benchmark measures what it says: everyone writes the same frames, and the report adds up. Nothing is timed."""

import itertools
from xml.etree import ElementTree

import pytest

from bench.__main__ import run
from bench.captures import KINDS, capture
from bench.chart import bar_chart
from bench.contestants import (
    FLOOR,
    PART_BUILT,
    PART_GIVEN,
    PYDANTIC_AI_BUILT,
    REASONING,
    STREAM_AND_FRAME,
    WAYS,
    WITH_METADATA,
    frames_of,
)
from bench.encoding import python_ways
from bench.growth import TEXT, TOOL_INPUT, frames_of_message, read_message
from bench.machine import Circumstances
from bench.node_process import NODE_WAYS, NodeProcess, node_is_installed
from bench.report import encoding_table, goal_list, growth_table, made_with, report, summary
from bench.results import Results, where_the_time_goes
from bench.rounds import Figure, measure_in_rounds, timed
from bench.sample import BLOCK_ID, text_deltas
from usechat.check import check_bytes
from usechat.protocol.chunks import Chunk, ReasoningDeltaChunk, TextDeltaChunk
from usechat.protocol.sse import ChunkDecoder

pytestmark = pytest.mark.once

DELTAS = [*text_deltas(100), '"', "%b", "\u2028", "\x00"]


def results_of(floor: float, part: float, new_part: float, peer: float, longest: float) -> Results:
    return Results(
        Circumstances("2030-01-02", "a machine", "a Python", {"ai": "7.0.0"}),
        {
            FLOOR: Figure(floor, 90),
            PART_GIVEN: Figure(part, part),
            PART_BUILT: Figure(new_part, new_part),
            PYDANTIC_AI_BUILT: Figure(peer, peer),
        },
        {TEXT: {1000: Figure(2000, 1900), 40000: Figure(longest, longest)}},
    )


def test_the_sample_is_an_answer_in_words() -> None:
    assert text_deltas(7) == ["##", " Why", " the", " kettle", " sings", "\n\nLong", " before"]
    assert len(text_deltas(1000)) == 1000
    assert not "".join(text_deltas(1000)).isascii()


def test_everyone_writes_legal_frames_of_the_same_deltas() -> None:
    frames = {name: frames_of(way, DELTAS) for name, way in python_ways().items()}
    if node_is_installed():
        with NodeProcess() as node:
            frames |= {name: node.frames(name, DELTAS) for name in NODE_WAYS}
    read = {name: ChunkDecoder().receive(b"".join(pieces)) for name, pieces in frames.items()}
    assert frames.keys() >= WAYS.keys()
    expected: dict[str, list[Chunk]] = {name: [TextDeltaChunk(BLOCK_ID, delta) for delta in DELTAS] for name in frames}
    expected[REASONING] = [ReasoningDeltaChunk(BLOCK_ID, delta) for delta in DELTAS]
    assert read == expected


@pytest.mark.parametrize("name", [PART_GIVEN, PART_BUILT, WITH_METADATA, STREAM_AND_FRAME])
def test_our_ways_write_the_bytes_of_the_floor(name: str) -> None:
    assert frames_of(WAYS[name], DELTAS) == frames_of(WAYS[FLOOR], DELTAS)


def test_the_text_that_is_read_is_the_text_that_was_sent() -> None:
    assert [part.get("text") for part in read_message(frames_of_message(TEXT, 30))["parts"]] == [
        None,
        "".join(text_deltas(30)),
    ]


def test_the_tool_input_that_is_read_came_in_pieces() -> None:
    frames = frames_of_message(TOOL_INPUT, 30)
    assert sum(b'"tool-input-delta"' in frame for frame in frames) == 30
    assert [part.get("input") for part in read_message(frames)["parts"]] == [None, {"words": text_deltas(30)}]


def test_rounds_keep_the_median_and_the_best_after_the_warm_up(capsys: pytest.CaptureFixture[str]) -> None:
    measured = {"a": iter([1.0, 5.0, 3.0, 4.0]), "b": itertools.repeat(7.0)}
    figures = measure_in_rounds(
        {name: values.__next__ for name, values in measured.items()}, rounds=3, warm_up=1, title="work"
    )
    assert figures == {"a": Figure(4.0, 3.0), "b": Figure(7.0, 7.0)}
    assert capsys.readouterr().err.endswith("work: round 4 of 4\n")


def test_timed_does_the_work_once_and_again_until_it_took_long_enough() -> None:
    once: list[None] = []
    often: list[None] = []
    assert timed(lambda: once.append(None), 1000, least=0)() >= 0
    assert timed(lambda: often.append(None), 1, least=50_000_000)() > 0
    assert len(once) == 1 < len(often)


def test_a_run_that_meets_every_goal() -> None:
    assert goal_list(results_of(floor=100, part=150, new_part=200, peer=1800, longest=2500)).splitlines() == [
        "- met: text part to bytes in at most 3x the floor: 2.00x",
        "- met: stretch: in at most 2x the floor: 2.00x",
        "- met: at least 9x faster than pydantic-ai's chunks: 9.0x",
        "- met: text: time per delta flat (within 1.25x) from 1,000 to 40,000 deltas: 1.25x",
    ]


def test_a_run_that_misses_every_goal() -> None:
    assert goal_list(results_of(floor=100, part=200, new_part=301, peer=2700, longest=2600)).splitlines() == [
        "- MISSED: text part to bytes in at most 3x the floor: 3.01x",
        "- MISSED: stretch: in at most 2x the floor: 3.01x",
        "- MISSED: at least 9x faster than pydantic-ai's chunks: 9.0x",
        "- MISSED: text: time per delta flat (within 1.25x) from 1,000 to 40,000 deltas: 1.30x",
    ]


def test_tables_rank_and_compare() -> None:
    results = results_of(floor=100, part=150, new_part=250, peer=2500, longest=2100)
    assert encoding_table(results).splitlines()[2:] == [
        "| floor: prebuilt prefix + escaped delta |       100 |      90 |    1.00 |                   0.40 |",
        "| usechat: FrameStream.send, part given  |       150 |     150 |    1.50 |                   0.60 |",
        "| usechat: FrameStream.send, part built  |       250 |     250 |    2.50 |                   1.00 |",
        "| pydantic-ai: encode_event, chunk built |     2,500 |   2,500 |   25.00 |                  10.00 |",
    ]
    assert growth_table(results).splitlines()[2:] == [
        "| text    |  1,000 |                2.00 |    1.90 |       1.00 |",
        "| text    | 40,000 |                2.10 |    2.10 |       1.05 |",
    ]
    assert where_the_time_goes(results) == (
        "Of the 250 ns from text to bytes, 100 are the floor, 50 the call of `send` and its checks,"
        " 100 the building of the part."
    )


def test_a_busy_machine_is_told() -> None:
    quiet = results_of(floor=100, part=150, new_part=250, peer=2500, longest=2100)
    busy = results_of(floor=135, part=150, new_part=250, peer=2500, longest=2100)
    assert made_with(quiet) == "2030-01-02, a machine, a Python; ai 7.0.0."
    assert made_with(busy).endswith(" The machine was busy (the floor's median is 1.50x its best): run it again.")
    assert summary(quiet).startswith(made_with(quiet))


def test_the_chart_is_well_formed_and_to_scale() -> None:
    chart = ElementTree.fromstring(bar_chart("a < b", {"usechat: x": 25, "other": 100}, ours="usechat"))
    space = "{http://www.w3.org/2000/svg}"
    assert [text.text for text in chart.iter(f"{space}text")] == ["a < b", "usechat: x", "25", "other", "100"]
    widths = [int(bar.attrib["width"]) for bar in chart.iter(f"{space}rect")]
    assert widths[1] == 4 * widths[0]


def test_a_quick_run_measures_everyone_who_is_there() -> None:
    results = run(quick=True)
    assert results.encoding.keys() == python_ways().keys() | (NODE_WAYS.keys() if node_is_installed() else set())
    assert report(results).startswith("# The core, side by side\n")


@pytest.mark.parametrize("kind", KINDS)
def test_a_capture_is_as_long_as_asked_for_and_accepted(kind: str) -> None:
    body = b"".join(capture(kind, 20_000))
    assert 20_000 <= len(body) < 22_000
    assert all(verdict["ok"] for verdict in check_bytes(body)["verdicts"].values())
