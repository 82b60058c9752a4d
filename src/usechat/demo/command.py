"""The command `usechat demo`: its options; it is served as `usechat serve` would serve it."""

import argparse
import os
from argparse import Namespace
from importlib.resources import files
from importlib.util import find_spec
from typing import Final

from usechat.errors import MissingDependency, PageMissing
from usechat.targets import port

__all__ = ["HELP", "add_arguments", "run"]

HELP: Final = "show what a chat can do, and answer questions about usechat"
_DESCRIPTION: Final = """\
Serve a show of what a chat can do, scene by scene, with the Python behind each, on the chat page. Other messages are
answered from the documentation of usechat. The demo works offline and without an API key: its agents follow a script,
unless you name a real model with --model. If you let a scene kill the server, the command starts it again.
"""
_EPILOG: Final = """\
exit code: 2 if the port is in use, the page is not built, or the model cannot be used; the error says which.

examples:
  usechat demo --open
  OPENAI_API_KEY=… usechat demo --model openai:gpt-5
"""
_TARGET: Final = "usechat.demo.app:guide"
_NEEDED: Final = {
    "pyyaml": "yaml",
    "jsonata-python": "jsonata",
    "pydantic-ai-slim": "pydantic_ai",
    "sqlalchemy": "sqlalchemy",
    "aiosqlite": "aiosqlite",
    "alembic": "alembic",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description, parser.epilog = _DESCRIPTION, _EPILOG
    add = parser.add_argument
    add("--model", default="script", metavar="NAME",
        help="the model that answers: script, or any model name of pydantic-ai (default: script)")  # fmt: skip
    add("--port", default=8000, type=port, help="the port to listen on; 0 for any free port (default: 8000)")
    add("--open", action="store_true", help="open the page in a browser")
    parser.set_defaults(run=run)


def run(options: Namespace) -> int:
    """Serve the demo until the process is asked to exit; return the exit code."""
    for package, module in _NEEDED.items():
        if find_spec(module) is None:
            raise MissingDependency(package, "demo")
    if not (files("usechat") / "web" / "built" / "index.html").is_file():
        raise PageMissing
    from usechat.demo.models import MODEL_VARIABLE, model_for
    from usechat.demo.survival import serve_and_restart

    model_for(options.model)  # raises here what is wrong with the model, in one sentence
    os.environ[MODEL_VARIABLE] = options.model  # the server is a process of its own
    from usechat.demo.app import SUGGESTIONS, TITLE, describe

    page = ["--title", TITLE, "--description", describe(options.model), "--inspector"]
    page += [argument for text in SUGGESTIONS for argument in ("--suggestion", text)]
    return serve_and_restart([_TARGET, *page], port=options.port, shows_page=options.open)
