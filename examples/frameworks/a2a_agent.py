"""An A2A agent at an address that asks questions: `usechat serve examples/frameworks/a2a_agent.py:agent`.

The agent is at A2A_URL. The same without Python: `usechat serve --as a2a http://127.0.0.1:9999`.
"""

import os

from usechat import Turn
from usechat.adapters.a2a import A2aEndpoint


def about(turn: Turn) -> dict[str, object]:
    """Tell the agent which chat a message is from."""
    return {"metadata": {"chat": turn.chat_id}}


agent = A2aEndpoint(os.environ.get("A2A_URL", "http://127.0.0.1:9999"), pass_on=["accept-language"], options=about)
