"""Imported by the process from which dying servers are forked: it has answered once, and imported the agents."""

import tests.chats.surviving  # noqa: F401 - each process would take seconds to import the framework
from tests.chats.dying import answer_once

answer_once()
