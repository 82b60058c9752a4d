"""Imported by the process from which dying servers are forked: it has answered once, and imported the agents."""

# Each process would take seconds to import the frameworks, and what they and their clients import on first use.
import genai_prices.data  # noqa: F401
import openai.resources.chat
import openai.resources.responses  # noqa: F401

import tests.chats.killed_app
import tests.chats.surviving  # noqa: F401
from tests.chats.dying import answer_once

answer_once()
