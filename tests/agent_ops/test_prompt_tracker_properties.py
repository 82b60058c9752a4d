"""Many people's prompts interleaved, on every wire: no text reaches a stream whose prompt it does not answer."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.agent_ops.wires import WIRES, Wire, WireSession
from usechat import parts as p
from usechat.agent_ops.adapter import WITHDRAWN
from usechat.agent_ops.turn_parts import TURN_FAILED

TEXTS = ("a", "b", "c")

acts = st.one_of(
    st.tuples(st.just("ask"), st.sampled_from(TEXTS), st.sampled_from([False, False, True])),
    st.tuples(st.just("ask elsewhere"), st.sampled_from(["x", "y"]), st.sampled_from([False, False, True])),
    st.just(("deliver",)),
    st.just(("step",)),
    st.just(("step",)),
)


def perform(session: WireSession, act: tuple[object, ...]) -> None:
    match act:
        case ("ask", str(text), bool(fails)):
            session.ask(text, fails=fails)
        case ("ask elsewhere", str(text), bool(fails)):
            session.ask_elsewhere(text, fails=fails)
        case ("deliver",):
            session.deliver()
        case _:
            session.step()


@pytest.mark.parametrize("wire", WIRES, ids=str)
@settings(deadline=None, max_examples=60)
@given(st.lists(acts, max_size=40))
def test_every_stream_gets_the_answer_to_its_own_prompt(wire: Wire, done: list[tuple[object, ...]]) -> None:
    session = WireSession(wire)
    for act in done:
        perform(session, act)
        assert session.aborts_only_itself()
    session.run_to_end()
    asked = sum(act[0] == "ask" for act in done)
    assert len(session.all) == asked
    for stream in session.all:
        answer = f"answer to {stream.prompt.text}"
        if stream.ending == p.Abort(WITHDRAWN):
            assert (wire.echo, stream.text) == ("dispatch", "")
        elif stream.prompt.fails and stream.text == "":
            assert stream.ending in (p.Error("No model"), p.Error(TURN_FAILED)), done
        else:
            assert (stream.text, stream.ending) == (answer, p.Finish()), done
