"""`usechat chat` in a real terminal, of 80 and of 200 columns."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from tests.client.terminal_screen import Terminal, terminal
from tests.server.process import PATIENCE, question, serve_process

ENTER, LEAVE, CTRL_C = "\r", "\x04", "\x03"
USECHAT = str(Path(sys.executable).with_name("usechat"))
HELP = "Ctrl-C stops an answer, Ctrl-D leaves, /help shows what else there is."
SENTENCE = "Forty-two words and not one more would be needed to say it well. "
AGENT = f"""
import asyncio
from pathlib import Path
from usechat import parts

async def agent(turn):
    if turn.request.continues is not None:
        for answer in turn.approvals:
            yield parts.ToolResult(answer.tool_call_id, "gone")
        for answer in turn.tool_outputs:
            yield f"You are in {{answer.output}}."
    elif turn.text == "remove":
        yield parts.ToolCall(f"r{{len(turn.messages)}}", "remove", {{"file": "a"}})
        yield parts.ApprovalRequest(f"a{{len(turn.messages)}}", f"r{{len(turn.messages)}}")
    elif turn.text == "where":
        yield parts.ToolCall(f"w{{len(turn.messages)}}", "location", {{}})
    elif turn.text == "long":
        for word in {SENTENCE!r}.split() * 3:
            yield word + " "
            await asyncio.sleep(0.01)
        yield "\\n\\n- one\\n- two\\n"
    elif turn.text == "endless":
        yield "Begun.\\n\\n"
        await asyncio.Event().wait()
    elif turn.text == "awaited":
        yield "Begun.\\n\\n"
        while not Path("go").exists():
            await asyncio.sleep(0.01)
        yield "Ended."
    elif turn.text == "slow":
        yield "Begun.\\n\\n"
        await asyncio.sleep(1)
        yield "Ended."
    else:
        yield f"Message {{len(turn.messages)}}: {{turn.text}}, {{len(turn.files)}} files."
"""


@contextmanager
def chatting(directory: Path, columns: int, *options: str) -> Iterator[Terminal]:
    (directory / "my_app.py").write_text(AGENT, encoding="utf-8")
    with terminal([USECHAT, "chat", "my_app:agent", *options], directory, columns) as screen:
        yield screen


@pytest.mark.parametrize("columns", [80, 200])
def test_one_chat_has_two_questions_of_each_kind(tmp_path: Path, columns: int) -> None:
    with chatting(tmp_path, columns) as screen:
        screen.wait_for(HELP, ">")
        for place in ("Rome", "Paris"):
            screen.type(f"where{ENTER}")
            screen.wait_for("> where", "⚙ location {}", "Output of location {}?", "JSON or text:")
            screen.type(f"{place}{ENTER}")
            screen.wait_for(f"JSON or text: {place}", f"You are in {place}.", ">")
            screen.type(f"remove{ENTER}")
            screen.wait_for('⚙ remove {"file":"a"}', 'Approve remove {"file":"a"}?', "y or n:")
            screen.type("y")
            screen.wait_for("y or n:", "Approved.", '  remove → "gone"', ">")
        screen.type(LEAVE)


@pytest.mark.parametrize("columns", [80, 200])
def test_text_fills_the_width_and_no_more(tmp_path: Path, columns: int) -> None:
    with chatting(tmp_path, columns) as screen:
        screen.wait_for(HELP, ">")
        screen.type(f"long{ENTER}")
        screen.wait_for(*wrapped(SENTENCE.split() * 3, columns), " • one", " • two", ">")
        assert screen.lines[:2] == [HELP, "> long"], "what was drawn meanwhile is gone"
        screen.type(LEAVE)


def wrapped(words: list[str], columns: int) -> list[str]:
    """Return the lines of a paragraph: as many words in each as there is room for."""
    lines = [words[0]]
    for word in words[1:]:
        if len(lines[-1]) + 1 + len(word) <= columns:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


@pytest.mark.parametrize("columns", [80, 200])
def test_keys_that_are_pressed_while_an_answer_streams_are_at_the_next_prompt(tmp_path: Path, columns: int) -> None:
    with chatting(tmp_path, columns) as screen:
        screen.wait_for(HELP, ">")
        screen.type(f"slow{ENTER}")
        screen.wait_for("> slow", "Begun.")
        screen.type("half a que")
        screen.wait_for("Begun.", "Ended.", "> half a que")
        screen.type(f"stion{ENTER}")
        screen.wait_for("> half a question", "Message 3: half a question, 0 files.", ">")
        screen.type(f"endless{ENTER}")
        screen.wait_for("> endless", "Begun.")
        screen.type(f"more{CTRL_C}")
        screen.wait_for("> endless", "Begun.", "Stopped.", "> more")
        screen.type(f"{CTRL_C}{LEAVE}")


def test_files_of_the_command_line_go_with_the_first_message(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    with chatting(tmp_path, 80, "--file", "a.txt") as screen:
        screen.wait_for(HELP, "a.txt goes with the next message.", ">")
        screen.type(f"hi{ENTER}")
        screen.wait_for("> hi", "Message 1: hi, 1 files.", ">")
        screen.type(f"again{ENTER}")
        screen.wait_for("> again", "Message 3: again, 0 files.", ">")
        screen.type(LEAVE)


@pytest.mark.parametrize("columns", [80, 200])
def test_an_answer_that_is_being_written_is_resumed(tmp_path: Path, columns: int) -> None:
    (tmp_path / "my_app.py").write_text(AGENT, encoding="utf-8")
    with serve_process(tmp_path, "my_app:agent") as server:
        chat = f"{server.url}/api/chat"
        with httpx2.stream("POST", chat, json=question("awaited"), timeout=PATIENCE) as other:
            assert any("Begun." in line for line in other.iter_lines())
            with terminal([USECHAT, "chat", chat, "--id", "c1"], tmp_path, columns) as screen:
                screen.wait_for(HELP, "Begun.")
                (tmp_path / "go").touch()
                screen.wait_for(HELP, "Begun.", "Ended.", ">")
                screen.type(f"/resume{ENTER}")
                screen.wait_for("> /resume", "No answer is being written.", ">")
                screen.type(LEAVE)
