"""A flow in Python. Its runs are stored in SQLite, and it is also served over the WebSocket of Open Harness.

usechat serve examples/open_harness/chat.py:transport
python examples/open_harness/chat.py, and then: usechat serve --as open-harness ws://127.0.0.1:42069/ws
"""

import sys
from pathlib import Path

from usechat.open_harness import (
    FlowRuntime,
    FlowRuntimes,
    OpenHarnessChatTransport,
    SqliteRunStore,
    load_flow,
    serve_runtime,
)

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

flow = load_flow(HERE / "trip-flow.yaml")
store = SqliteRunStore("runs.db")

transport = OpenHarnessChatTransport(FlowRuntimes(flow, store=store), send_flow_metadata=True)

if __name__ == "__main__":
    serve_runtime(lambda: FlowRuntime(flow, store=store))
