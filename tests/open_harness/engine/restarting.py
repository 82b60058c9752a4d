"""A process of its own: runs a flow until it pauses, or goes on with it. Prints how the run stands."""

import asyncio
import json
import sys

from tests.open_harness.flow_runs import constant, edge, flow, python
from usechat.open_harness.engine.runtime import FlowRuntime
from usechat.open_harness.engine.sqlite_store import SqliteRunStore

FLOW = flow(
    python("count", "counts"),
    python("ask", "asks_and_pauses"),
    constant("end", "{{ ask.answer & ' ' & $string(count.count) & ' ' & flow.input.message }}"),
    edges=(edge("count->ask"), edge("ask->end")),
)


async def main(path: str, run_id: str | None, message: str) -> None:
    with SqliteRunStore(path) as store:
        if run_id is None:
            snapshot = await FlowRuntime(FLOW, store=store).run({"message": message, "chatId": "c"})
        else:
            snapshot = await FlowRuntime(FLOW, store=store, resume={"runId": run_id}).resume(message)
    sys.stdout.write(json.dumps(snapshot))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2] or None, sys.argv[3]))
