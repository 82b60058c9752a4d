"""Any interleaving of legal events from several nodes, before the real clients."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conformance.http_client import NEWEST
from tests.conformance.judge import Chat, Judge
from tests.open_harness.events.test_interleaving import ENDINGS, expected, interleavings, shown
from tests.open_harness.scripted import event
from usechat.open_harness.events.adapter import OpenHarnessAdapter
from usechat.open_harness.runtime_protocol import Event
from usechat.protocol.sse import FrameStream
from usechat.protocol.stream import MessageStream


@pytest.mark.parametrize("release", NEWEST)
@given(events=interleavings(), ending=st.sampled_from(ENDINGS))
def test_every_nodes_text_is_on_the_page_complete_and_in_order(
    judge: Judge, release: str, events: list[Event], ending: Event
) -> None:
    adapter = OpenHarnessAdapter(send_flow_metadata=True, send_node_outputs=True)
    frames = FrameStream(MessageStream(message_id="m"))
    flow_events = [event("flow:start", flowName="f"), *events, ending]
    body = b"".join(frames.send(part) for each in flow_events for part in adapter.feed(each)) + frames.close()
    [page] = judge.chat(release, [Chat(body)])
    fails = ending["type"] == "flow:aborted" or ending.get("status") == "failed"
    assert page["status"] == ("error" if fails else "ready")
    assert shown(page["live"], "text") == expected(events, "text")
    assert shown(page["live"], "reasoning") == expected(events, "thinking")
