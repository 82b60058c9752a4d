"""A chat in a terminal: what `usechat chat` shows and asks.

Two libraries of the extra ``terminal`` do the work: ``rich`` draws, ``prompt_toolkit`` reads lines and keys. They leave
the conversation in the terminal's own scrollback, where it can be selected and searched; see
``docs/decisions/0018-a-chat-in-the-terminal.md``.

:class:`AnswerPrinter` shows the chunks of an answer while they arrive. Text is Markdown: a paragraph, list item or code
block is printed for good when the next one begins, and only the last one is drawn again and again. What an agent says
is never sent to the terminal with control characters in it: they could move the cursor or write to the clipboard.
"""

import asyncio
import codecs
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import monotonic
from typing import Any, Final

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import Output
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.markdown import Markdown
from rich.segment import Segment
from rich.text import Text

from usechat.client.chat import Chat, Reply, file_part
from usechat.client.views import MessageView, ToolView, printable, printable_failure
from usechat.errors import UnusableFile, UsechatError
from usechat.protocol import chunks
from usechat.protocol.chunks import Chunk
from usechat.protocol.tool_calls import APPROVAL_TOOL
from usechat.protocol.ui_messages import FileUIPart
from usechat.protocol.values import json_text

__all__ = ["AnswerPrinter", "TerminalChat"]

_COMMANDS: Final = {
    "/file PATH": "send this file with the next message",
    "/regenerate": "ask for the last answer again",
    "/resume": "read an answer that is being written, such as after a lost connection",
    "/reasoning": "show the reasoning of the last answer",
    "/history": "show the conversation",
    "/raw": "show frames instead of Markdown, or Markdown again",
    "/new": "start a new chat",
    "/help": "show this list",
    "/quit": "leave, as Ctrl-D does",
}
"""What a line does that begins with a slash; with a space before it, it is a message."""
_LONGEST_VALUE: Final = 1_000
"""Characters of a tool's input or output that are shown."""
_DRAWN_PER_SECOND: Final = 12


def _complete_blocks(text: str) -> int:
    """Return how many characters of a Markdown text are blocks that no further text can change."""
    end = position = 0
    fence = ""
    for line in text.splitlines(keepends=True):
        position += len(line)
        mark = line.strip()[:3]
        if fence:
            fence = "" if mark == fence else fence
        elif mark in ("```", "~~~"):
            fence = mark
        elif not line.strip() and line.endswith("\n"):
            end = position
    return end


class _Lines:
    """Lines that were rendered before."""

    def __init__(self, lines: list[list[Segment]]) -> None:
        self._lines = lines

    def __rich_console__(self, _console: Console, _options: ConsoleOptions) -> RenderResult:
        for line in self._lines:
            yield from line
            yield Segment.line()


def _trimmed(line: list[Segment]) -> list[Segment]:
    """Return a line without the spaces at its end, unless they have a colour, as those of a code block do."""
    segments = list(line)
    while segments and not (segments[-1].style and segments[-1].style.bgcolor):
        text = segments[-1].text.rstrip(" ")
        if text:
            return [*segments[:-1], Segment(text, segments[-1].style)]
        segments.pop()
    return segments


class _Tail:
    """The last lines of what is still being written, no more than the terminal shows."""

    def __init__(self, content: Any) -> None:
        self._content = content

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self._content, options, pad=False)
        for line in lines[-max(1, console.height - 2) :]:
            yield from line
            yield Segment.line()


class AnswerPrinter:
    """Shows one answer while it arrives. Use it as a context manager.

    ``tools`` are the names of the calls that are known, by their ids; those of the answer are added.
    """

    def __init__(
        self, console: Console, tools: dict[str, str] | None = None, *, clock: Callable[[], float] = monotonic
    ) -> None:
        self._console = console
        self._clock = clock
        self._live = Live(
            console=console, transient=True, refresh_per_second=_DRAWN_PER_SECOND, vertical_overflow="visible"
        )
        self._texts: dict[str, str] = {}
        self._thoughts: dict[str, tuple[float, int]] = {}
        self._tools = {} if tools is None else tools

    def __enter__(self) -> "AnswerPrinter":
        self._live.start()
        return self

    def __exit__(self, *_failure: object) -> None:
        for block in list(self._texts):
            self._end_text(block)
        self._live.stop()

    def receive(self, chunk: Chunk) -> None:
        """Show one chunk."""
        match chunk:
            case chunks.TextStartChunk():
                self._texts[chunk.id] = ""
            case chunks.TextDeltaChunk():
                self._add_text(chunk.id, printable(chunk.delta))
            case chunks.TextEndChunk():
                self._end_text(chunk.id)
            case chunks.ReasoningStartChunk():
                self._thoughts[chunk.id] = (self._clock(), 0)
            case chunks.ReasoningDeltaChunk():
                self._think(chunk.id, len(chunk.delta))
            case chunks.ReasoningEndChunk():
                self._end_thought(chunk.id)
            case _:
                self._receive_tool(chunk)

    def _receive_tool(self, chunk: Chunk) -> None:
        match chunk:
            case chunks.ToolInputAvailableChunk():
                self._tools[chunk.tool_call_id] = chunk.tool_name
                if chunk.tool_name != APPROVAL_TOOL:  # the question is asked when the answer has ended
                    self._line("bold cyan", f"⚙ {chunk.tool_name} {_value(chunk.input)}")
            case chunks.ToolInputErrorChunk():
                self._line("red", f"⚙ {chunk.tool_name} ✗ {chunk.error_text}")
            case chunks.ToolOutputAvailableChunk() if chunk.preliminary:
                self._draw(Text(printable(f"  {self._tool(chunk)} … {_value(chunk.output)}"), "dim"))
            case chunks.ToolOutputAvailableChunk():
                self._line("cyan", f"  {self._tool(chunk)} → {_value(chunk.output)}")
            case chunks.ToolOutputErrorChunk():
                self._line("red", f"  {self._tool(chunk)} ✗ {chunk.error_text}")
            case chunks.ToolOutputDeniedChunk():
                self._line("red", f"  {self._tool(chunk)} ✗ denied")
            case _:
                self._receive_aside(chunk)

    def _receive_aside(self, chunk: Chunk) -> None:
        match chunk:
            case chunks.DataChunk(type="data-chat-title"):
                pass  # a page shows it in its list of chats
            case chunks.DataChunk():
                self._line("dim", f"{chunk.type} {_value(chunk.data)}")
            case chunks.FileChunk():
                self._line("blue", f"file {chunk.media_type} {_shortened(chunk.url)}")
            case chunks.SourceUrlChunk():
                self._line("blue", f"source {chunk.title or ''} {chunk.url}")
            case chunks.SourceDocumentChunk():
                self._line("blue", f"source {chunk.title} {chunk.media_type}")
            case chunks.AbortChunk():
                self._line("yellow", "The agent stopped.")

    def _tool(self, chunk: Any) -> str:
        return self._tools.get(chunk.tool_call_id, str(chunk.tool_call_id))

    def _add_text(self, block: str, delta: str) -> None:
        text = self._texts.get(block, "") + delta
        complete = _complete_blocks(text)
        if complete:
            self._live.update(_Tail(""), refresh=True)  # or these blocks would be drawn below themselves once more
            self._print_markdown(text[:complete])
        self._texts[block] = text[complete:]
        self._draw(Markdown(self._texts[block]))

    def _end_text(self, block: str) -> None:
        text = self._texts.pop(block, "")
        self._draw("")
        self._print_markdown(text)

    def _print_markdown(self, text: str) -> None:
        """Print blocks for good, with exactly one empty line after them."""
        if text.strip():
            lines = list(map(_trimmed, self._console.render_lines(Markdown(text), pad=False)))
            numbers = [number for number, line in enumerate(lines) if any(piece.text.strip() for piece in line)]
            self._console.print(_Lines(lines[numbers[0] : numbers[-1] + 1] if numbers else []), "")

    def _think(self, block: str, count: int) -> None:
        began, before = self._thoughts[block]
        self._thoughts[block] = (began, before + count)
        self._draw(Text(f"thinking… {before + count} characters", "dim italic"))

    def _end_thought(self, block: str) -> None:
        began, count = self._thoughts.pop(block)
        if count:
            seconds = self._clock() - began
            self._line("dim italic", f"▸ thought for {seconds:.1f} s, {count} characters; /reasoning shows them")

    def _line(self, style: str, text: str) -> None:
        self._draw("")
        self._console.print(Text(printable(text), style))

    def _draw(self, content: Any) -> None:
        self._live.update(_Tail(content))


def _value(value: Any) -> str:
    return _shortened(json_text(value))


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}… ({len(text)} characters)"


@contextlib.contextmanager
def _without_echo() -> Iterator[None]:
    """Keep the keys that are pressed meanwhile for the next prompt, also over Ctrl-C, and do not show them.

    A terminal would draw them into the answer, and drop them when it turns Ctrl-C into a signal.
    """
    if os.name != "posix" or not sys.stdin.isatty():
        yield
        return
    import termios

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    quiet = [*before[:3], (before[3] & ~termios.ECHO) | termios.NOFLSH, *before[4:]]
    termios.tcsetattr(terminal, termios.TCSADRAIN, quiet)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _approval_keys() -> KeyBindings:
    """Return keys of which ``y`` and ``n`` answer, and the others do nothing."""
    keys = KeyBindings()
    for key, answer in {"y": "yes", "n": "no"}.items():

        @keys.add(key)
        def _(event: KeyPressEvent, answer: str = answer) -> None:
            event.app.exit(result=answer)

    @keys.add("<any>")
    def _(_event: KeyPressEvent) -> None:
        pass

    return keys


class TerminalChat:
    """A conversation in a terminal, until the person leaves it.

    ``new_chat`` makes the next chat for ``/new``. ``files`` go with the first message. ``keys`` and ``output`` are
    those of ``prompt_toolkit``, by default the terminal's. For ``raw`` and ``/raw``, set ``on_data`` of the chats'
    transport to :meth:`show_data`.
    """

    def __init__(
        self,
        chat: Chat,
        new_chat: Callable[[], Chat],
        console: Console,
        *,
        raw: bool = False,
        files: Sequence[FileUIPart] = (),
        keys: Input | None = None,
        output: Output | None = None,
    ) -> None:
        self._new_chat = new_chat
        self._chat = chat
        self._console = console
        self._raw = raw
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._files = list(files)
        self._tools: dict[str, str] = {}
        names = [command.split()[0] for command in _COMMANDS]
        self._prompt: PromptSession[str] = PromptSession(
            history=InMemoryHistory(), completer=WordCompleter(names, sentence=True), input=keys, output=output
        )
        self._question: PromptSession[str] = PromptSession(input=keys, output=output)
        # Its own session, because a session keeps the key bindings of its last prompt.
        self._approval: PromptSession[str] = PromptSession(key_bindings=_approval_keys(), input=keys, output=output)

    async def run(self, *, resume: bool = False) -> None:
        """Talk until the person leaves; with ``resume``, begin with an answer that is being written."""
        self._console.print(Text("Ctrl-C stops an answer, Ctrl-D leaves, /help shows what else there is.", "dim"))
        for file in self._files:
            self._announce(str(file.get("filename")))
        with contextlib.suppress(EOFError):  # Ctrl-D at a question
            await self._converse(resume=resume)
        await self._chat.aclose()

    async def _converse(self, *, resume: bool) -> None:
        if resume:
            await self._show(self._chat.resume)
        while (line := await self._read()) is not None:
            try:
                if not await self._obey(line):
                    break
            except (UsechatError, OSError) as error:
                self._complain(error)

    async def _read(self) -> str | None:
        """Read a line; ``None`` if the person leaves."""
        try:
            return await self._prompt.prompt_async("> ")
        except KeyboardInterrupt:
            return ""
        except EOFError:
            return None

    async def _obey(self, line: str) -> bool:
        """Do what a line says; tell whether to continue."""
        command, _, rest = line.rstrip().partition(" ")
        match command:
            case "/quit" | "/exit":
                return False
            case "/help":
                for name, meaning in _COMMANDS.items():
                    self._console.print(Text(f"  {name:<14}{meaning}"))
            case "/file":
                self._attach(rest.strip())
            case "/regenerate":
                await self._show(self._chat.regenerate)
            case "/resume":
                if not await self._show(self._chat.resume):
                    self._console.print(Text("No answer is being written.", "dim"))
            case "/reasoning":
                self._show_reasoning()
            case "/history":
                self._show_history()
            case "/raw":
                self._raw = not self._raw
            case "/new":
                await self._chat.aclose()
                self._chat = self._new_chat()
            case _:
                await self._send(line)
        return True

    def _attach(self, path: str) -> None:
        if len(path) > 1 and path[0] == path[-1] and path[0] in "'\"":  # as terminals paste a file that is dropped
            path = path[1:-1]
        if not path:
            raise UnusableFile("/file needs the path of a file")
        self._files.append(file_part(Path(path).expanduser()))
        self._announce(path)

    def _announce(self, file: str) -> None:
        self._console.print(Text(printable(f"{file} goes with the next message."), "dim"))

    async def _send(self, line: str) -> None:
        command = line.partition(" ")[0]
        if command.startswith("/") and command[1:].isalpha():
            hint = "/help lists the commands. With a space before it, the line is sent as a message."
            self._console.print(Text(f"There is no command {printable(command)}. {hint}", "red"))
        elif line.strip() or self._files:
            files, self._files = self._files, []
            await self._show(lambda: self._chat.send(line.strip() or None, files=files))

    async def _show(self, start: Callable[[], Reply]) -> bool:
        """Show an answer, and those that follow from what the person is asked; return whether anything was shown."""
        reply: Reply | None = start()
        is_shown = False
        while reply is not None:
            with _without_echo(), self._stopping():
                try:
                    is_shown |= await self._print(reply)
                except UsechatError as error:
                    self._complain(error)
                    return True
            reply = await self._ask()
        return is_shown

    def show_data(self, data: bytes) -> None:
        """Show a piece of an answer as it arrived, if frames are shown instead of Markdown."""
        if self._raw:
            self._console.out(printable(self._decode(data)), end="", highlight=False)

    async def _print(self, reply: Reply) -> bool:
        """Print an answer; return whether anything arrived, as far as that is known."""
        if self._raw:
            await reply  # its transport calls show_data
            return True
        has_begun = False
        with AnswerPrinter(self._console, self._tools) as printer:
            async for update in reply:
                printer.receive(update.chunk)
                has_begun = True
        return has_begun

    @contextlib.contextmanager
    def _stopping(self) -> Iterator[None]:
        """Let Ctrl-C stop the answer."""
        loop = asyncio.get_running_loop()
        stops: set[asyncio.Task[None]] = set()

        def stop() -> None:
            stops.add(loop.create_task(self._chat.stop()))

        try:
            loop.add_signal_handler(signal.SIGINT, stop)
        except (NotImplementedError, RuntimeError, ValueError):  # Windows, or not the main thread
            yield
            return
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)
        if stops:
            self._console.print(Text("Stopped.", "yellow"))

    async def _ask(self) -> Reply | None:
        """Ask the person what the last message waits for; return the reply to the answers, if there was a question.

        Ctrl-C answers nothing and sends nothing: the call stays open. Raises EOFError at Ctrl-D.
        """
        last = self._chat.last
        questions = [] if last is None else last.questions
        try:
            for tool in questions:
                await self._ask_about(tool)
        except KeyboardInterrupt:
            self._console.print(Text("Not answered.", "yellow"))
            return None
        return self._chat.send() if questions else None

    async def _ask_about(self, tool: ToolView) -> None:
        if tool.waits_for_approval:
            self._chat.add_approval_response(str(tool.approval_id), await self._approves(tool.name, tool.input))
        elif tool.asks_for_approval:
            approved = await self._approves(str(tool.input.get("toolName")), tool.input.get("input"))
            self._chat.add_tool_output(tool.call_id, {"approved": approved})
        else:
            self._chat.add_tool_output(tool.call_id, await self._output_of(tool))

    async def _approves(self, name: str, value: Any) -> bool:
        self._console.print(Text(printable(f"Approve {name} {_value(value)}?"), "bold yellow"))
        answer = await self._approval.prompt_async("y or n: ")
        self._console.print(Text("Approved." if answer == "yes" else "Denied.", "yellow"))
        return answer == "yes"

    async def _output_of(self, tool: ToolView) -> Any:
        self._console.print(Text(printable(f"Output of {tool.name} {_value(tool.input)}?"), "bold yellow"))
        answer = await self._question.prompt_async("JSON or text: ")
        try:
            return json.loads(answer)
        except ValueError:
            return answer

    def _show_reasoning(self) -> None:
        answers = [MessageView(message) for message in self._chat.messages if message["role"] == "assistant"]
        reasoning = answers[-1].reasoning if answers else ""
        self._console.print(Text(printable(reasoning) or "The last answer has no reasoning.", "dim italic"))

    def _show_history(self) -> None:
        for view in map(MessageView, self._chat.messages):
            self._console.print(Text(f"{view.role}:", "bold"))
            for tool in view.tools:
                outcome = tool.error_text or _value(tool.output)
                self._console.print(Text(printable(f"⚙ {tool.name} {_value(tool.input)} → {outcome}"), "cyan"))
            for file in view.files:
                self._console.print(Text(printable(f"file {file.get('filename') or file['mediaType']}"), "blue"))
            self._console.print(Markdown(printable(view.text)))

    def _complain(self, error: Exception) -> None:
        self._console.print(Text(printable_failure(error), "bold red"))
