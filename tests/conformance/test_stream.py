"""Whatever parts a source sends, no release that the stream was made for rejects it."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conformance.judge import RELEASES, Chat, Judge
from tests.part_strategies import continued_messages, part_lists
from usechat import parts
from usechat.chunks import Chunk, type_of
from usechat.parts import Part
from usechat.chunks import encode_chunk

DONE = b"data: [DONE]\n\n"


def encode_frame(c: Chunk) -> bytes:
    return b"data: " + encode_chunk(c) + b"\n\n"


from usechat.stream import MessageStream

USER = {"id": "user-1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}


def stream_chunks(sent: list[Part], sdk: str, continues: dict[str, Any] | None) -> list[Chunk]:
    stream = MessageStream(message_id="message-1", sdk=sdk, continues=continues)
    out = [chunk for part in sent for chunk in stream.send(part)]
    return out + stream.close()


def error_of(sent: list[Part]) -> str | None:
    for part in sent:
        if isinstance(part, parts.Error):
            return part.error_text
        if isinstance(part, parts.Finish | parts.Abort):
            return None
    return None


@pytest.mark.parametrize("major", RELEASES)
def test_any_parts_make_a_stream_that_no_client_rejects(judge: Judge, major: str) -> None:
    reach: Counter[str] = Counter()

    @settings(max_examples=2000, suppress_health_check=list(HealthCheck))
    @given(part_lists, st.none() | continued_messages(approvals=major != "5"))
    def check(sent: list[Part], continues: dict[str, Any] | None) -> None:
        error = error_of(sent)
        history = [USER, continues] if continues else [USER]
        streams = {sdk: stream_chunks(sent, sdk, continues) for sdk in ("any", major, *RELEASES[major])}
        for release in RELEASES[major]:
            fitting = ["any", release] + ([major] if release == RELEASES[major][-1] else [])
            bodies = [b"".join(map(encode_frame, streams[sdk])) + DONE for sdk in fitting]
            for sdk, result in zip(
                fitting, judge.chat(release, [Chat(body, messages=history) for body in bodies]), strict=True
            ):
                assert result["status"] == ("error" if error else "ready"), (
                    sdk,
                    release,
                    result["error"],
                    streams[sdk],
                )
                if error is not None:
                    assert result["error"] is not None
                    assert result["error"]["message"] == error
        note_reach(reach, sent, streams[major], continues)

    check()
    print(major, reach)


def note_reach(reach: Counter[str], sent: list[Part], out: list[Chunk], continues: dict[str, Any] | None) -> None:
    reach.update({"data-*" if type_of(chunk).startswith("data-") else type_of(chunk) for chunk in out})
    reach["three lanes"] += len({part.lane for part in sent}) >= 3
    reach["continuation"] += continues is not None
