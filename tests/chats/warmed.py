"""Imported by the process from which dying servers are forked: it has answered once before."""

from tests.chats.dying import answer_once

answer_once()
