"""The command `usechat chat`: talks to an endpoint or an agent, in a terminal or through pipes."""

import argparse
import asyncio
import codecs
import contextlib
import sys
from argparse import Namespace
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from usechat.cli import options as read
from usechat.client.views import printable, printable_failure
from usechat.errors import CannotAnswer, CannotLoad, CannotStart, MissingDependency, UnusableFile, UsechatError
from usechat.protocol.chunks import TextStartChunk
from usechat.protocol.releases import release
from usechat.protocol.values import json_text
from usechat.targets import load_object

if TYPE_CHECKING:
    from usechat.client.chat import Chat
    from usechat.client.transport import HttpChatTransport
    from usechat.client.websocket import WebSocketChatTransport
    from usechat.protocol.ui_messages import FileUIPart

    Transport: TypeAlias = HttpChatTransport | WebSocketChatTransport

__all__ = ["add_arguments", "run"]

_DESCRIPTION: Final = """\
Talk to an AI SDK endpoint in any language, or to an agent without a server. In a terminal you have a conversation with
Markdown, tools, approvals and files; /help lists the commands. In a pipe, standard input is the message and standard
output is the text of the answer.
"""
_EPILOG: Final = """\
exit code: 0 if all is well, 1 if the answer failed, was cut off or waits for a person, 2 if the address, the object or
an option is wrong.

examples:
  usechat chat http://localhost:3000/api/chat
  usechat chat my_app:agent
  echo "What is the weather in Paris?" | usechat chat my_app:agent
  echo "Describe this." | usechat chat my_app:agent --file photo.png --json
"""
_NEEDED: Final = {"prompt-toolkit": "prompt_toolkit", "rich": "rich"}
_IN_PROCESS: Final = "http://localhost"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.usage = "usechat chat [options] URL|OBJECT"
    parser.description, parser.epilog = _DESCRIPTION, _EPILOG
    add = parser.add_argument
    add("target", metavar="URL|OBJECT",
        help="http://HOST/api/chat, ws://HOST/api/chat/ws, MODULE:NAME or path/to/file.py:NAME of an agent, an ASGI app"
        " or a WSGI app")  # fmt: skip
    add("--id", metavar="ID", help="the id of the chat; if an answer of this chat is running, resume it")
    add("--sdk", default="7", metavar="RELEASE", help="act as the client of this AI SDK release (default: 7)")
    add("--header", action="append", default=[], type=read.header, metavar="'NAME: VALUE'",
        help="send this header with every request; repeatable")  # fmt: skip
    add("--body", default={}, type=read.json_object, metavar="JSON", help="merge this object into every request")
    add("--path", default="/api/chat", type=read.path, help="the path of the chat route in an app (default: /api/chat)")
    add("--insecure", action="store_true", help="accept every TLS certificate, such as a self-signed one")
    add("--file", action="append", default=[], type=Path, metavar="PATH",
        help="send this file with the first message; repeatable")  # fmt: skip
    add("--raw", action="store_true", help="show frames instead of text")
    add("--json", action="store_true", help="in a pipe: print all messages as one JSON array instead of the text")
    parser.set_defaults(run=run)


def run(options: Namespace) -> int:
    """Talk to what the options name; return the exit code."""
    release(options.sdk)  # raises what is wrong with it before anything is asked
    is_terminal = sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty() and not options.json
    if is_terminal:
        for package, module in _NEEDED.items():
            if find_spec(module) is None:
                raise MissingDependency(package, "terminal")
    return asyncio.run(_talk(options, is_terminal=is_terminal))


async def _talk(options: Namespace, *, is_terminal: bool) -> int:
    files = list(map(_read_file, options.file))
    async with _opened(options) as transport:
        if is_terminal:
            return await _talk_in_terminal(transport, options, files)
        return await _answer_pipe(transport, options, files)


def _read_file(path: Path) -> "FileUIPart":
    from usechat.client.chat import file_part

    try:
        return file_part(path)
    except OSError as error:
        raise UnusableFile(f"--file {path} cannot be read: {error.strerror}") from None


@contextlib.asynccontextmanager
async def _opened(options: Namespace) -> "AsyncIterator[Transport]":
    """Make the transport to an endpoint, or to an object in this process."""
    from usechat.client.transport import HttpChatTransport
    from usechat.client.websocket import WebSocketChatTransport

    headers, url = dict(options.header), options.target
    transport: Any
    if url.lower().startswith(("ws://", "wss://")):
        tls = read.unverified_tls() if options.insecure and url.lower().startswith("wss:") else None
        transport = WebSocketChatTransport(url, headers=headers, handshake_headers=headers, ssl_context=tls)
    elif "://" in url:
        transport = HttpChatTransport(url, headers=headers, verify=not options.insecure)
    else:
        inner = _in_process(url)
        transport = HttpChatTransport(_IN_PROCESS + options.path, headers=headers, http=inner, idle_timeout=None)
    async with transport:
        yield transport


def _in_process(target: str) -> Any:
    from usechat.client.in_process import InProcessTransport, asgi_app_of

    try:
        return InProcessTransport(asgi_app_of(load_object(target)))
    except CannotAnswer as error:
        raise CannotLoad(f"{target} cannot answer: {error}") from None


def _new_chat(transport: "Transport", options: Namespace, chat_id: str | None = None) -> "Chat":
    from usechat.client.chat import Chat

    return Chat(transport, id=chat_id, sdk=options.sdk, body=options.body)


async def _talk_in_terminal(transport: "Transport", options: Namespace, files: "list[FileUIPart]") -> int:
    from rich.console import Console

    from usechat.client.terminal import TerminalChat

    talk = TerminalChat(
        _new_chat(transport, options, options.id),
        lambda: _new_chat(transport, options),
        Console(highlight=False),
        raw=options.raw,
        files=files,
    )
    transport.on_data = talk.show_data
    await talk.run(resume=options.id is not None)
    return 0


async def _answer_pipe(transport: "Transport", options: Namespace, files: "list[FileUIPart]") -> int:
    """Send standard input as one message, and print the answer."""
    text = _read_message()
    if not text and not files:
        raise CannotStart("standard input is empty; write the message to it, or run the command in a terminal")
    has_text, gap = False, ""
    if options.raw and not options.json:
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        transport.on_data = lambda data: _write(decode(data))
    async with _new_chat(transport, options, options.id) as chat:
        try:
            async for update in chat.send(text or None, files=files):
                if isinstance(update.chunk, TextStartChunk) and has_text:
                    gap = "\n\n"  # as the page, which shows each text as a paragraph
                if update.text_delta and not options.json and not options.raw:
                    _write(gap + update.text_delta)
                has_text, gap = has_text or bool(update.text_delta), "" if update.text_delta else gap
            failure = _waits_for(chat)
        except BrokenPipeError:  # the reader of the text has gone
            raise
        except (UsechatError, OSError) as error:
            failure = printable_failure(error)
        if options.json:
            _write(json_text(chat.messages))
    if not options.raw and (options.json or has_text):
        _write("\n")
    if failure:
        sys.stderr.write(f"usechat chat: {failure}\n")
    return int(bool(failure))


def _read_message() -> str:
    if sys.stdin is None:  # closed (`<&-`), as it is for some services
        return ""
    try:
        text = sys.stdin.read().strip()
        text.encode()  # in some locales, Python reads bytes that are not UTF-8 as surrogates
    except UnicodeError:
        raise CannotStart(
            "standard input is not UTF-8; convert it (`iconv -f LATIN1 -t UTF-8`), or send it with --file PATH"
        ) from None
    return text


def _waits_for(chat: "Chat") -> str:
    """Return a sentence about the calls of the last message that wait for a person or a page; empty if none does."""
    last = chat.last
    questions = [] if last is None else last.questions
    names = [str(tool.input.get("toolName")) if tool.asks_for_approval else tool.name for tool in questions]
    waiting = printable(", ".join(names))
    return f"the answer waits for a person: {waiting}; run the command in a terminal" if names else ""


def _write(text: str) -> None:
    """Print a piece of what an agent says; to a terminal without control characters."""
    sys.stdout.write(printable(text) if sys.stdout.isatty() else text)
    sys.stdout.flush()
