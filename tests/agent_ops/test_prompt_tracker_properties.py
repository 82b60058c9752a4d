"""Many people's prompts interleaved, on every wire: no text reaches a stream whose prompt it does not answer."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.agent_ops.wires import EVERY_WIRE, WIRES, Wire, WireSession
from usechat import parts as p
from usechat.agent_ops.adapter import REMOVED, UNCLEAR, WITHDRAWN
from usechat.agent_ops.turn_parts import TURN_FAILED

TEXTS = ("a", "b", "no model!")

acts = st.one_of(
    st.tuples(st.just("ask"), st.sampled_from(TEXTS)),
    st.tuples(st.just("ask elsewhere"), st.sampled_from([*TEXTS, "x", "y"])),
    st.just(("deliver",)),
    st.just(("step",)),
    st.just(("step",)),
    st.just(("abort",)),
    st.just(("lose runner",)),
)


def perform(session: WireSession, act: tuple[str, ...]) -> None:
    match act:
        case ("ask", text):
            session.ask(text)
        case ("ask elsewhere", text):
            session.ask_elsewhere(text)
        case ("deliver",):
            session.deliver()
        case ("abort",):
            session.abort()
        case ("lose runner",):
            session.lose_runner()
        case _:
            session.step()


def perform_safely(session: WireSession, done: list[tuple[str, ...]]) -> None:
    """Perform the acts; after each, no stream has a text that does not answer it, or would stop another's turn."""
    for act in done:
        perform(session, act)
        assert session.aborts_only_itself()
        assert all(f"answer to {stream.prompt.text}".startswith(stream.text) for stream in session.all)


@settings(deadline=None, max_examples=600)
@given(st.sampled_from(EVERY_WIRE), st.lists(acts, max_size=40))
def test_no_stream_gets_another_answer_if_prompts_without_an_echo_come_from_this_process_alone(
    wire: Wire, done: list[tuple[str, ...]]
) -> None:
    """A wire with neither an echo nor a status gives no sign of a prompt that another process sends."""
    perform_safely(WireSession(wire), done)


@pytest.mark.parametrize("wire", WIRES, ids=str)
@settings(deadline=None, max_examples=60)
@given(st.lists(acts, max_size=40))
def test_every_stream_gets_the_answer_to_its_own_prompt(wire: Wire, done: list[tuple[str, ...]]) -> None:
    session = WireSession(wire)
    perform_safely(session, done)
    session.run_to_end()
    count = sum(act[0] == "ask" for act in done)
    assert len(session.all) == count or not wire.init
    for stream in session.all:
        answer = f"answer to {stream.prompt.text}"
        if stream.ending == p.Error(WITHDRAWN):
            assert (wire.echo, stream.text) == ("dispatch", "")
        elif stream.prompt.text in session.stopped | session.lost:
            assert answer.startswith(stream.text), done
            assert stream.adapter.ended or not wire.init, done
        elif session.stopped and stream.ending in (p.Error(REMOVED), p.Error(UNCLEAR)):
            assert stream.text == "", done  # it was queued between an abort and its confirmation
        elif not wire.init and stream.ending in (None, p.Error(UNCLEAR)):
            assert stream.text == "", done  # nothing on this wire says whose turn it is
        elif stream.prompt.fails and stream.text == "":
            assert stream.ending in (p.Error("No model"), p.Error(TURN_FAILED)), done
        else:
            assert (stream.text, stream.ending) == (answer, p.Finish()), done
