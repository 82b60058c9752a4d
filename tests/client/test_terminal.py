"""A chat in a terminal: what is printed, which keys answer, and how an answer is stopped."""

import asyncio
import io
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from rich.console import Console

from usechat import parts
from usechat.client import Chat, HttpChatTransport
from usechat.client.in_process import InProcessTransport
from usechat.client.terminal import AnswerPrinter, TerminalChat
from usechat.client.views import printable
from usechat.protocol import chunks
from usechat.protocol.chunks import Chunk
from usechat.server import ChatApp, Settings
from usechat.turn import Turn


def shown(*answer: Chunk, width: int = 60, height: int = 20) -> str:
    """Return what a file gets that is no terminal: everything that is printed for good."""
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=False)
    ticks = iter(range(100))
    with AnswerPrinter(console, clock=lambda: float(next(ticks))) as printer:
        for chunk in answer:
            printer.receive(chunk)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def text(*deltas: str) -> list[Chunk]:
    return [
        chunks.TextStartChunk("1"),
        *(chunks.TextDeltaChunk("1", delta) for delta in deltas),
        chunks.TextEndChunk("1"),
    ]


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_markdown_is_printed_block_for_block_however_it_is_cut(size: int) -> None:
    source = "# Title\n\nSome **bold** text.\n\n- one\n- two\n\n```python\na = 1\n\nb = 2\n```\n\nThe end."
    pieces = [source[at : at + size] for at in range(0, len(source), size)]
    lines = [line.strip() for line in shown(*text(*pieces)).splitlines() if line.strip()]
    assert lines == ["Title", "Some bold text.", "• one", "• two", "a = 1", "b = 2", "The end."]


def test_a_block_that_is_printed_is_not_drawn_below_itself() -> None:
    screen = io.StringIO()
    start, old, new, _ = text("Old block", " ends.\n\nNew")
    with AnswerPrinter(Console(file=screen, width=60, height=20, force_terminal=True)) as printer:
        printer.receive(start)
        printer.receive(old)
        deadline = monotonic() + 30
        while "Old block" not in screen.getvalue():  # the tail is drawn several times in a second
            assert monotonic() < deadline
            sleep(0.01)
        printer.receive(new)
    assert "Old block" not in screen.getvalue().partition("Old block ends.")[2]


def test_one_empty_line_follows_each_paragraph() -> None:
    assert shown(*text("One.\n\n", "Two.")) == "One.\n\nTwo.\n\n"


def test_reasoning_is_folded_into_one_line() -> None:
    reasoning: list[Chunk] = [
        chunks.ReasoningStartChunk("r"),
        chunks.ReasoningDeltaChunk("r", "Hm, well."),
        chunks.ReasoningEndChunk("r"),
    ]
    assert shown(*reasoning, width=80) == "▸ thought for 1.0 s, 9 characters; /reasoning shows them\n"
    assert shown(chunks.ReasoningStartChunk("r"), chunks.ReasoningEndChunk("r")) == ""


CALL = chunks.ToolInputAvailableChunk("c1", "weather", {"city": "Paris"})


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        ([CALL], '⚙ weather {"city":"Paris"}'),
        ([chunks.ToolInputErrorChunk("c1", "weather", {}, "No city.")], "⚙ weather ✗ No city."),
        ([CALL, chunks.ToolOutputAvailableChunk("c1", {"celsius": 21})], '  weather → {"celsius":21}'),
        ([CALL, chunks.ToolOutputErrorChunk("c1", "No.")], "  weather ✗ No."),
        ([CALL, chunks.ToolOutputDeniedChunk("c1")], "  weather ✗ denied"),
        ([chunks.ToolOutputAvailableChunk("c9", 1)], "  c9 → 1"),
        ([chunks.DataChunk("data-progress", {"percent": 5})], 'data-progress {"percent":5}'),
        ([chunks.FileChunk("https://h/a.png", "image/png")], "file image/png https://h/a.png"),
        ([chunks.SourceUrlChunk("s1", "https://h/", title="H")], "source H https://h/"),
        ([chunks.SourceDocumentChunk("s1", "text/plain", "Notes")], "source Notes text/plain"),
        ([chunks.AbortChunk()], "The agent stopped."),
    ],
)
def test_everything_else_is_one_line(answer: list[Chunk], line: str) -> None:
    assert shown(*answer).splitlines()[-1] == line


def test_the_title_of_a_chat_is_not_part_of_its_answer() -> None:
    assert shown(chunks.DataChunk("data-chat-title", "Bees")) == ""


def test_a_preliminary_output_is_not_printed_for_good_and_a_long_one_is_shortened() -> None:
    assert "…" not in shown(CALL, chunks.ToolOutputAvailableChunk("c1", 1, preliminary=True))
    long = shown(CALL, chunks.ToolOutputAvailableChunk("c1", "x" * 5_000), width=6_000)
    assert long.splitlines()[-1].endswith("… (5002 characters)")


def test_control_characters_never_reach_the_terminal() -> None:
    evil = "a\x1b[2J\x9b1m\x07b"
    output = shown(
        *text(evil), CALL, chunks.ToolOutputAvailableChunk("c1", evil), chunks.ToolOutputErrorChunk("c1", evil)
    )
    assert set(output) & {"\x1b", "\x9b", "\x07"} == set()
    assert printable("a\r\nb\tc") == "a\nb\tc"


async def agent(turn: Turn) -> AsyncIterator[Any]:
    if turn.approvals:
        yield parts.ToolResult("t1", "removed") if turn.approvals[0].approved else parts.ToolDenied("t1")
    elif turn.tool_outputs:
        yield f"You are in {turn.tool_outputs[0].output}."
    elif turn.text == "remove":
        yield parts.ToolCall("t1", "remove", {"file": "a"})
        yield parts.ApprovalRequest("a1", "t1")
    elif turn.text == "where":
        yield parts.ToolCall("t2", "location", {})
    elif turn.text == "endless":
        yield "One."
        yield parts.Data("waits", 1)
        await asyncio.Event().wait()
    elif turn.text == "fail":
        raise ValueError("secret")
    else:
        yield parts.Reasoning("Hm.")
        yield f"You said {turn.text}, with {len(turn.files)} files."


class Interrupting(io.StringIO):
    """A terminal in which somebody presses Ctrl-C as soon as it shows a text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def write(self, text: str) -> int:
        if self._text and self._text in text:
            os.kill(os.getpid(), signal.SIGINT)
        return super().write(text)


async def talk(*lines: str, sdk: str = "any", interrupted_at: str = "", **options: Any) -> str:
    """Type these lines into a terminal; return what it shows."""
    console = Console(file=Interrupting(interrupted_at), width=80, force_terminal=False)
    inner = InProcessTransport(ChatApp(agent, settings=Settings(sdk=sdk)))
    with create_pipe_input() as keys:
        async with HttpChatTransport("http://h/api/chat", http=inner) as transport:

            def new_chat() -> Chat:
                return Chat(transport)

            chat = TerminalChat(new_chat(), new_chat, console, keys=keys, output=DummyOutput(), **options)
            transport.on_data = chat.show_data
            keys.send_text("".join(lines))
            await asyncio.wait_for(chat.run(resume=True), 60)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().partition("\n")[2]


LEAVE = "\x04"


async def test_a_message_is_answered_until_the_person_leaves() -> None:
    assert await talk("hello\r", LEAVE) == (
        "▸ thought for 0.0 s, 3 characters; /reasoning shows them\nYou said hello, with 0 files.\n\n"
    )
    assert await talk("/quit\r") == ""
    assert await talk("\r", "\x03", LEAVE) == ""


@pytest.mark.parametrize("sdk", ["any", "7"])
@pytest.mark.parametrize(("key", "outcome"), [("y", '  remove → "removed"'), ("xn", "  remove ✗")])
async def test_an_approval_is_one_key(sdk: str, key: str, outcome: str) -> None:
    output = await talk("remove\r", key, LEAVE, sdk=sdk)
    assert output.startswith('⚙ remove {"file":"a"}\nApprove remove {"file":"a"}?\n')
    assert outcome in output
    assert ("Approved." in output) is (key == "y")


@pytest.mark.parametrize(("line", "place"), [('"Paris"', "Paris"), ("in Rome", "in Rome")])
async def test_the_output_of_a_tool_of_the_page_is_typed(line: str, place: str) -> None:
    assert f"You are in {place}." in await talk("where\r", f"{line}\r", LEAVE)


async def test_the_output_of_a_tool_can_be_typed_after_an_approval() -> None:
    assert "You are in Rome." in await talk("remove\r", "y", "where\r", "Rome\r", LEAVE)


@pytest.mark.parametrize("message", ["where", "remove"])
async def test_ctrl_c_at_a_question_answers_nothing_and_the_chat_goes_on(message: str) -> None:
    output = await talk(f"{message}\r", "\x03", "hi\r", LEAVE)
    assert "?\nNot answered.\n" in output
    assert "You are in" not in output
    assert "Denied." not in output
    assert "You said hi" in output


@pytest.mark.parametrize("message", ["where", "remove"])
async def test_ctrl_d_at_a_question_leaves(message: str) -> None:
    assert (await talk(f"{message}\r", LEAVE, "hi\r", LEAVE)).endswith("?\n")


async def test_ctrl_c_stops_an_answer() -> None:
    output = await talk("endless\r", LEAVE, interrupted_at="data-waits")
    assert output.endswith("One.\n\nStopped.\n")


async def test_a_failure_is_shown_and_the_chat_goes_on() -> None:
    output = await talk("fail\r", "hi\r", LEAVE)
    assert output.startswith("An error occurred. Reference: ")
    assert "secret" not in output
    assert "You said hi" in output


async def test_files_go_with_the_next_message(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    output = await talk(
        f"/file {tmp_path}/a.txt\r",
        "hi\r",
        "again\r",
        "/file nowhere\r",
        LEAVE,
    )
    assert "You said hi, with 1 files." in output
    assert "You said again, with 0 files." in output
    assert "No such file or directory" in output
    (tmp_path / "a b.txt").write_text("x")
    output = await talk(f"/file '{tmp_path}/a b.txt'\r", f'/file "{tmp_path}/a.txt"\r', "hi\r", "/file\r", LEAVE)
    assert "You said hi, with 2 files." in output
    assert "/file needs the path of a file" in output


async def test_commands_show_what_was_said() -> None:
    output = await talk("hi\r", "/reasoning\r", "/history\r", "/regenerate\r", "/new\r", "/reasoning\r", LEAVE)
    assert "\nHm.\n" in output
    assert "user:\nhi" in output
    assert output.count("You said hi") == 3
    assert "The last answer has no reasoning." in output
    assert "/regenerate   ask for the last answer again" in await talk("/help\r", LEAVE)
    assert "there is no message to regenerate" in await talk("/regenerate\r", LEAVE)


@pytest.mark.parametrize("line", ["/nope", "/nope it is"])
async def test_a_command_that_does_not_exist_is_not_sent(line: str) -> None:
    output = await talk(f"{line}\r", f" {line}\r", "/usr/bin is a path\r", LEAVE)
    assert output.startswith("There is no command /nope. /help lists the commands.")
    assert output.count("There is no command") == 1
    assert f"You said {line}, with 0 files." in output
    assert "You said /usr/bin is a path, with 0 files." in output


async def test_frames_are_shown_raw() -> None:
    output = await talk("hi\r", LEAVE, raw=True)
    assert 'data: {"type":"finish"' in output.replace("\n", "")
    assert 'data: {"type":"error"' in (await talk("fail\r", LEAVE, raw=True)).replace("\n", "")
    assert "You said hi" in await talk("/raw\r", "/raw\r", "hi\r", LEAVE)
