"""What must be true of every story (:mod:`tests.turn_strategies`) on the page of a real client."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tests.conformance.judge import RELEASES, Chat, Judge
from tests.conformance.test_message_builder import same
from tests.turn_strategies import Story
from usechat import parts
from usechat.errors import StreamFailed
from usechat.parts import Part
from usechat.protocol.message import MessageBuilder
from usechat.protocol.sse import ChunkDecoder, FrameStream, encode_frames
from usechat.protocol.stream import MessageStream

USER = {"id": "user-1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}
TOKEN = re.compile(r"<(lane\d+)\.(\d+)>")


def frames_of(sent: Sequence[Part], sdk: str, continues: Any = None) -> bytes:
    """Return the bytes of a turn, which must be those of the chunks, ended well unless the parts end it."""
    frames = FrameStream(MessageStream(message_id="message-1", sdk=sdk, continues=continues))
    body = b"".join(map(frames.send, sent)) + frames.close()
    stream = MessageStream(message_id="message-1", sdk=sdk, continues=continues)
    assert body == b"".join(encode_frames(stream.send(part)) for part in sent) + encode_frames(stream.close())
    return body


def read_by_us(body: bytes, release: str, continues: Any) -> Any:
    builder = MessageBuilder(sdk=release, message=continues)
    try:
        for chunk in ChunkDecoder().receive(body):
            builder.receive(chunk)
    except StreamFailed:
        pass
    return builder.message


def check_story(judge: Judge, release: str, sdk: str, story: Story) -> int:
    """Check a story on a page of this release; return the number of streams."""
    page = check_turn(judge, release, sdk, story.first, None)
    if story.second is None:
        return 1
    unanswered = 0 if release.startswith("5.") else story.unanswered
    message = answered(page, approved=story.approved, unanswered=unanswered)
    page = check_turn(judge, release, sdk, story.second, message)
    said = [*story.first, *story.second]
    assert conserved(said) == shown(page), (release, sdk, story, page)
    return 2


def check_turn(judge: Judge, release: str, sdk: str, sent: list[Part], continues: Any) -> Any:
    """Check one turn and return the message that the page shows."""
    body = frames_of(sent, sdk, continues)
    [result] = judge.chat(release, [Chat(body, messages=[USER, continues] if continues else [USER])])
    about = (release, sdk, sent, continues, body, result["error"], result["message"])
    failed = any(isinstance(part, parts.Error) for part in sent)
    page = result["message"]
    assert result["status"] == ("error" if failed else "ready"), ("accepted", *about)
    assert same(read_by_us(body, release, continues), result["live"]), ("the message equals ours", *about)
    assert same(page, result["live"]), ("the page shows the whole message", *about)
    assert not any(part.get("state") == "input-streaming" for part in page["parts"]), ("no ghost", *about)
    if continues is None:
        assert conserved(sent) == shown(page), ("conservation", *about)
    check_posting(judge, release, page, about, sent)
    check_validity(judge, release, page, about)
    return page


def check_validity(judge: Judge, release: str, page: Any, about: Any) -> None:
    """Ask `validateUIMessages` of the newest release of the major, as a server that gets the message back does."""
    if not page["parts"]:
        return  # no message may be empty
    [validated] = judge.validate(RELEASES[release[0]][-1], [[USER, page]])
    assert validated["ok"], ("the message validates", validated["error"], *about)


def check_posting(judge: Judge, release: str, page: Any, about: Any, sent: list[Part]) -> None:
    """Ask both predicates of the newest release of the major: those of old ones never count a failed tool as done."""
    newest = RELEASES[release[0]][-1]
    posts, posts_when_answered = (
        complete["toolCalls"] or bool(complete["approvals"])
        for complete in judge.complete(newest, [[USER, page], [USER, answered(page)]])
    )
    # After a failure no page posts by itself.
    ending = next((part for part in sent if isinstance(part, parts.Error | parts.Abort)), None)
    must_rest = isinstance(ending, parts.Abort) or says_after_call(page)
    assert isinstance(ending, parts.Error) or not (posts and must_rest), ("no endless re-post", *about)
    assert posts_when_answered or answered(page) == page, ("no stall", *about)


def says_after_call(page: Any) -> bool:
    """Tell whether text stands behind a call of the last step: a page that posts then would never stop posting.

    No page posts because of a call that the provider ran.
    """
    types = [part["type"] for part in page["parts"] if not part.get("providerExecuted")]
    last_step = types[len(types) - types[::-1].index("step-start") :] if "step-start" in types else types
    calls = [index for index, kind in enumerate(last_step) if kind.startswith("tool-")]
    return bool(calls) and "text" in last_step[calls[0] :]


def answered(page: Any, *, approved: bool = True, unanswered: int = 0) -> Any:
    """Return the message after the page answered everything that waits, but so many calls from the last on."""
    asked_through_tool = {part["input"]["toolCallId"] for part in page["parts"] if part["type"] == "tool-approval"}
    waiting = [index for index, part in enumerate(page["parts"]) if waits(part, asked_through_tool)]
    chosen = set(waiting[: len(waiting) - unanswered] if unanswered else waiting)
    return page | {
        "parts": [answer(part, approved) if index in chosen else part for index, part in enumerate(page["parts"])]
    }


def waits(part: Any, asked_through_tool: set[str]) -> bool:
    if part.get("state") == "approval-requested":
        return True
    is_for_page = part.get("state") == "input-available" and not part.get("providerExecuted")
    return is_for_page and part["toolCallId"] not in asked_through_tool


def answer(part: Any, approved: bool) -> Any:
    """Answer like `addToolApprovalResponse`, or `addToolOutput`."""
    if part["state"] == "approval-requested":
        return part | {"state": "approval-responded", "approval": {**part["approval"], "approved": approved}}
    output = {"approved": approved} if part["type"] == "tool-approval" else "from the page"
    return part | {"state": "output-available", "output": output}


Told = tuple[dict[str, list[str]], Counter[str]]


def conserved(sent: Sequence[Part]) -> Told:
    """Return the text of each lane in order, and how often each other thing must be shown: once."""
    texts: dict[str, list[str]] = {}
    things: set[str] = set()
    for part in sent:
        match part:
            case parts.Text() | parts.Reasoning():
                texts.setdefault(part.lane, []).append(part.text)
            case parts.SourceUrl():
                things.add(part.source_id)
            case parts.File():
                things.add(part.url)
            case parts.Data():
                things.add(str(part.id))
            case parts.ApprovalResponse():
                pass
            case _ if isinstance(part, parts.ToolPart):
                things.add(part.tool_call_id)
    return texts, Counter(things)


def shown(page: Any) -> Told:
    """Return the text of each lane on the page, and how often each other thing is shown."""
    texts: dict[str, list[str]] = {}
    things: Counter[str] = Counter()
    for part in page["parts"]:
        if part["type"] in ("text", "reasoning"):
            found = list(TOKEN.finditer(part["text"]))
            assert len({token[1] for token in found}) <= 1, f"one part has the text of two lanes: {part}"
            for token in found:
                texts.setdefault(token[1], []).append(token[0])
        elif part["type"] == "source-url":
            things[part["sourceId"]] += 1
        elif part["type"] == "file":
            things[part["url"]] += 1
        elif part["type"].startswith("data-"):
            things[part["id"]] += 1
        elif part["type"].startswith("tool-") and part["type"] != "tool-approval":
            things[part["toolCallId"]] += 1
    return texts, things
