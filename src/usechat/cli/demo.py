"""The command `usechat demo`."""

import os
from argparse import Namespace
from importlib.resources import files
from importlib.util import find_spec
from typing import Final

from usechat.cli import serve
from usechat.errors import MissingDependency, PageMissing

__all__ = ["run"]

_NEEDED: Final = {"pyyaml": "yaml", "jsonata-python": "jsonata", "pydantic-ai-slim": "pydantic_ai"}


def run(options: Namespace) -> int:
    """Serve the demo until the process is told to end; return the exit code."""
    for package, module in _NEEDED.items():
        if find_spec(module) is None:
            raise MissingDependency(package, "demo")
    if not (files("usechat") / "web" / "built" / "index.html").is_file():
        raise PageMissing
    from usechat.demo.models import MODEL_VARIABLE, registry_for

    registry_for(options.model)  # what is wrong with the model is told here, in one sentence
    os.environ[MODEL_VARIABLE] = options.model  # the app is made anew in the server
    from usechat.demo.app import SUGGESTIONS, TITLE

    options.target, options.title, options.suggestions = "usechat.demo.app:guide", TITLE, SUGGESTIONS
    return serve.run(options)
