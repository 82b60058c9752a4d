"""What must be true of every story (:mod:`tests.turn_strategies`) on the page of a real client."""

import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from tests.conformance.judge import RELEASES, Chat, Judge
from tests.conformance.test_message_builder import same
from tests.turn_strategies import RUN_BY_SOURCE, Story
from usechat import parts
from usechat.errors import StreamFailed
from usechat.parts import Part
from usechat.protocol.message import MessageBuilder
from usechat.protocol.reframing import Reframer
from usechat.protocol.sse import ChunkDecoder, FrameStream, encode_frames
from usechat.protocol.stream import MessageStream

USER = {"id": "user-1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}
TOKEN = re.compile(r"<(lane\d+)\.(\d+)>")


def frames_of(items: Sequence[Part], sdk: str, continues: Any = None) -> bytes:
    """Return the bytes of a turn, which must be those of the chunks, ended well unless the parts end it."""
    frames = FrameStream(MessageStream(message_id="message-1", sdk=sdk, continues=continues))
    body = b"".join(map(frames.send, items)) + frames.close()
    stream = MessageStream(message_id="message-1", sdk=sdk, continues=continues)
    assert body == b"".join(encode_frames(stream.send(part)) for part in items) + encode_frames(stream.close())
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
    stored = stored_message(story, release)
    page = check_turn(judge, release, sdk, story.first, stored)
    for steps in (True, False):
        check_reframed(judge, release, story.first, steps=steps)
    if story.second is None:
        return 3
    unanswered = 0 if release.startswith("5.") else story.unanswered
    message = answered(page, approved=story.approved, unanswered=unanswered)
    texts, things = conserved([*story.first, *story.second])
    things += Counter(part["toolCallId"] for part in (stored or {"parts": []})["parts"] if "toolCallId" in part)
    pages = [
        check_turn(judge, release, sdk, story.second, message),
        *([] if unanswered else check_continued_elsewhere(judge, sdk, story.second, message)),
    ]
    for page in pages:
        assert (texts, things) == shown(page), ("conservation", release, sdk, story, page)
    return 3 + len(pages)


def check_continued_elsewhere(judge: Judge, sdk: str, items: list[Part], continues: Any) -> Iterator[Any]:
    """Check a turn that continues a message on pages of a major, each has its turn, and yield what they show.

    One page has loaded only what was before the message, and resumes. The other one has the message, as a second tab
    has it; a page of AI SDK 5 has no message with approvals. The message is answered: no page posts another one.
    """
    body = frames_of(items, sdk, continues)
    major = random.Random(repr(items)).choice(list(RELEASES))
    page = RELEASES[major][-1]
    resumed = Reframer("message-1", page, earlier=continues)
    yield check_page(judge, page, resumed.receive(body), items, None, f"made for {sdk}, resumed")
    if major != "5":
        tab = Reframer("message-1", page, continues=continues)
        yield check_page(judge, page, tab.receive(body), items, continues, f"made for {sdk}, a second tab")


def stored_message(story: Story, release: str) -> Any:
    """Return the message that the first turn continues, if there is one: without approvals for AI SDK 5."""
    if story.stored is None:
        return None
    knows_approvals = not release.startswith("5.")
    stored = [part for part in story.stored if knows_approvals or "approval" not in part]
    return {"id": "message-1", "role": "assistant", "parts": stored}


def check_reframed(judge: Judge, release: str, items: list[Part], *, steps: bool) -> None:
    """Check a turn that was made for another release, with steps or without, on a page of this one."""
    run_sdk = {"5": "7", "6": "5", "7": "5"}[release[0]] if steps else {"5": "6", "6": "7", "7": "5"}[release[0]]
    frames = FrameStream(MessageStream(message_id="message-1", sdk=run_sdk, send_steps=steps))
    reframer = Reframer("message-1", release)
    body = b"".join(map(reframer.receive, [*map(frames.send, items), frames.close()]))
    check_page(judge, release, body, items, None, f"reframed from {run_sdk}, steps {steps}")


def check_turn(judge: Judge, release: str, sdk: str, items: list[Part], continues: Any) -> Any:
    """Check one turn and return the message that the page shows."""
    page = check_page(judge, release, frames_of(items, sdk, continues), items, continues, sdk)
    if continues is None:
        assert conserved(items) == shown(page), ("conservation", release, sdk, items, page)
    return page


def check_page(judge: Judge, release: str, body: bytes, items: list[Part], continues: Any, sdk: str) -> Any:
    """Check what a page makes of the bytes of a turn, and return the message that it shows."""
    [result] = judge.chat(release, [Chat(body, messages=[USER, continues] if continues else [USER])])
    about = (release, sdk, items, continues, body, result["error"], result["message"])
    failed = any(isinstance(part, parts.Error) for part in items)
    page = result["message"]
    assert result["status"] == ("error" if failed else "ready"), ("accepted", *about)
    assert same(read_by_us(body, release, continues), result["live"]), ("the message equals ours", *about)
    assert same(page, result["live"]), ("the page shows the whole message", *about)
    assert not any(part.get("state") == "input-streaming" for part in page["parts"]), ("no ghost", *about)
    check_posting(judge, release, page, about, items)
    check_validity(judge, release, page, about)
    return page


def check_validity(judge: Judge, release: str, page: Any, about: Any) -> None:
    """Ask `validateUIMessages` of the newest release of the major, as a server that gets the message back does."""
    if not page["parts"]:
        return  # no message may be empty
    [validated] = judge.validate(RELEASES[release[0]][-1], [[USER, page]])
    assert validated["ok"], ("the message validates", validated["error"], *about)


def check_posting(judge: Judge, release: str, page: Any, about: Any, items: list[Part]) -> None:
    """Ask both predicates of the newest release of the major: those of old ones never count a failed tool as done."""
    newest = RELEASES[release[0]][-1]
    waiting = waiting_parts(page)
    almost = [answered(page, except_for=index) for index in waiting]
    posts, posts_when_answered, *posts_too_early = (
        complete["toolCalls"] or bool(complete["approvals"])
        for complete in judge.complete(newest, [[USER, message] for message in (page, answered(page), *almost)])
    )
    # After a failure no page posts by itself.
    ending = next((part for part in items if isinstance(part, parts.Error | parts.Abort)), None)
    must_rest = isinstance(ending, parts.Abort) or says_after_call(page) or bool(waiting)
    assert isinstance(ending, parts.Error) or not (posts and must_rest), ("no endless re-post", *about)
    assert posts_when_answered or not waiting, ("no stall", *about)
    # What is answered last would never be posted.
    assert not any(posts_too_early), ("no post before the last answer", *about)


def says_after_call(page: Any) -> bool:
    """Tell whether text stands behind a call of the last step: a page that posts then would never stop posting.

    No page posts because of a call that the provider ran.
    """
    types = [part["type"] for part in page["parts"] if not part.get("providerExecuted")]
    last_step = types[len(types) - types[::-1].index("step-start") :] if "step-start" in types else types
    calls = [index for index, kind in enumerate(last_step) if kind.startswith("tool-")]
    return bool(calls) and "text" in last_step[calls[0] :]


def waiting_parts(page: Any) -> list[int]:
    """Return the positions of the parts that wait for the page."""
    asked_through_tool = {part["input"]["toolCallId"] for part in page["parts"] if part["type"] == "tool-approval"}
    return [index for index, part in enumerate(page["parts"]) if waits(part, asked_through_tool)]


def answered(page: Any, *, approved: bool = True, unanswered: int = 0, except_for: int | None = None) -> Any:
    """Return the message after the page answered what waits, except one part or the last ``unanswered`` calls."""
    waiting = waiting_parts(page)
    indexes = set(waiting[: len(waiting) - unanswered] if unanswered else waiting) - {except_for}
    return page | {
        "parts": [answer(part, approved) if index in indexes else part for index, part in enumerate(page["parts"])]
    }


def waits(part: Any, asked_through_tool: set[str]) -> bool:
    if part.get("state") == "approval-requested":
        return True
    is_for_page = part.get("state") == "input-available" and not part.get("providerExecuted")
    return is_for_page and part["type"] != f"tool-{RUN_BY_SOURCE}" and part["toolCallId"] not in asked_through_tool


def answer(part: Any, approved: bool) -> Any:
    """Answer like `addToolApprovalResponse`, or `addToolOutput`."""
    if part["state"] == "approval-requested":
        return part | {"state": "approval-responded", "approval": {**part["approval"], "approved": approved}}
    output = {"approved": approved} if part["type"] == "tool-approval" else "from the page"
    return part | {"state": "output-available", "output": output}


Told = tuple[dict[str, list[str]], Counter[str]]


def conserved(items: Sequence[Part]) -> Told:
    """Return the text of each lane in order, and how often each other thing must be shown: once."""
    texts: dict[str, list[str]] = {}
    things: set[str] = set()
    for part in items:
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
            tokens = list(TOKEN.finditer(part["text"]))
            assert len({token[1] for token in tokens}) <= 1, f"one part has the text of two lanes: {part}"
            for token in tokens:
                texts.setdefault(token[1], []).append(token[0])
        elif part["type"] == "source-url":
            things[part["sourceId"]] += 1
        elif part["type"] == "file":
            things[part["url"]] += 1
        elif part["type"].startswith("data-"):
            things[part["id"]] += 1
        elif "toolCallId" in part and part["type"] != "tool-approval":
            things[part["toolCallId"]] += 1
    return texts, things
