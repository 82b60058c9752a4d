"""Runs that stand beside each other: a session's prompts are queued upstream, not here."""

import asyncio
from collections.abc import Mapping
from typing import Any

from usechat.runs.memory import MemoryRuns
from usechat.runs.run import RunInfo

__all__ = ["ConcurrentRuns"]


class ConcurrentRuns(MemoryRuns):
    """Knows the last run of each chat, and refuses none while another goes on.

    Nobody can read a run again, so of one that has ended only what the page may answer is remembered.
    """

    is_concurrent = True

    async def claim(
        self,
        info: RunInfo,
        *,
        continues: Mapping[str, Any] | None = None,  # noqa: ARG002
        after: str | None = None,  # noqa: ARG002
    ) -> RunInfo | None:
        """Make this the last run of its chat, whatever else goes on."""
        self._latest[info.chat_id] = info
        return None

    async def end(self, info: RunInfo) -> bool:
        """Remember what the last run of a chat asked, for a while."""
        latest = self._latest.get(info.chat_id)
        if latest is not None and latest.run_id == info.run_id:
            if info.answerable:
                self._latest[info.chat_id] = info
                asyncio.get_running_loop().call_later(self._remember, self._forget, info)
            else:
                del self._latest[info.chat_id]
        return True
