"""Views: what one client sees of a run, counted in chunks, so that it can go on at an index.

**The idea.** A client that counts chunks (``WorkflowChatTransport``) says after a cut: go on behind the first N. That
is right only if everything before N is what it got, chunk by chunk. So a :class:`View` names all that decides it: the
run, and how the run is written for this client: as it was sent, or again, for another release, behind what the message
held before or without it. The name of a view stands in the header of the answer (``x-workflow-run-id``) and comes back
in the path of the next request.

Frames are written again one chunk at a time here, and no deltas are merged: how they were batched makes no difference.

**The ending.** A client that sees no ending asks again at once, without end. So a :class:`Tail` always has one: its
own, a lone ``finish`` if the client has everything already, and an error if the run has none.
"""

import re
from collections.abc import Callable
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from usechat.protocol.chunks import ErrorChunk, FinishChunk
from usechat.protocol.sse import encode_frames, has_ending, without_first
from usechat.runs.store import LOST

__all__ = ["NOTHING_MORE", "Tail", "View", "ViewName", "failure"]

NOTHING_MORE: Final = encode_frames([FinishChunk()])
"""The frames of a stream that only ends."""


def failure(text: str) -> bytes:
    """Return the frames of a stream that only fails."""
    return encode_frames([ErrorChunk(text)])


class View(NamedTuple):
    """A run, and how it is written for a client.

    Without ``sdk`` it is written as it was sent; otherwise again, for that release. ``earlier`` says what becomes of
    the message that the run continues: it is sent first (``shown``), the client has it (``known``), or there is none.
    """

    run_id: str
    sdk: str = ""
    earlier: str = ""


_NAME: Final = re.compile(r"run~([^~]+)~([^~]*)~(|shown|known)~(.+)", re.DOTALL)


class ViewName(NamedTuple):
    """The name of a view of a chat's run, as clients keep it.

    >>> str(ViewName(View("r1"), "my chat"))
    'run~r1~~~my%20chat'
    >>> ViewName.parse("run~r1~6~known~my%20chat")
    ViewName(view=View(run_id='r1', sdk='6', earlier='known'), chat_id='my chat')
    """

    view: View
    chat_id: str

    @classmethod
    def parse(cls, text: str) -> "ViewName | None":
        """Read the name of a view; ``None`` for anything else, such as the id of a chat."""
        if (match := _NAME.fullmatch(text)) is None:
            return None
        *view, chat_id = match.groups()
        return cls(View(*view), unquote(chat_id, errors="surrogatepass"))

    def __str__(self) -> str:
        """Return the name: legal in a header, and in the path of a URL."""
        return "~".join(["run", *self.view, quote(self.chat_id, safe="", errors="surrogatepass")])


class Tail:
    """Writes the chunks of a run from an index on; ``rewrite`` writes them for the view first."""

    def __init__(self, start: int, rewrite: Callable[[bytes], bytes] | None = None) -> None:
        self._left = start
        self._rewrite = rewrite
        self._is_complete = self._has_ended = False

    def receive(self, frames: bytes) -> bytes:
        """Take frames of the run, each as it was sent, and return those that the client lacks."""
        if self._rewrite is not None:
            frames = self._rewrite(frames)
        self._is_complete = self._is_complete or has_ending(frames)
        if self._left:
            frames, left_out = without_first(frames, self._left)
            self._left -= left_out
        self._has_ended = self._has_ended or has_ending(frames)
        return frames

    def end(self) -> bytes:
        """Return the ending that the client lacks when the run has ended."""
        if self._has_ended:
            return b""
        return NOTHING_MORE if self._is_complete else failure(LOST)
