"""A process that is killed in the middle of a flow: the first node has ended, the second one runs."""

import asyncio
import sys

from tests.open_harness.flow_runs import edge, flow, python
from usechat.open_harness.engine.runtime import FlowRuntime
from usechat.open_harness.engine.sqlite_store import SqliteRunStore

FLOW = flow(python("count", "counts"), python("wait", "waits_for_a_resume"), edges=(edge("count->wait"),))


async def main(path: str) -> None:
    with SqliteRunStore(path) as store:
        await FlowRuntime(FLOW, store=store).run({"message": "hello", "chatId": "c"})


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
