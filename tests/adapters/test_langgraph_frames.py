"""How far a graph is from the task of its run: each frame between them costs at every event."""

import inspect
from pathlib import Path
from typing import Any

from langgraph.graph import START, MessagesState, StateGraph

import usechat
from usechat.adapters.langgraph import LangGraphSource
from usechat.testing import AgentClient
from usechat.turn import Turn

PACKAGE = str(Path(usechat.__file__).parent)


def own_frames() -> list[str]:
    """Return the functions of usechat on the stack of the running task, the outermost first."""
    frame = inspect.currentframe()
    names = []
    while frame is not None:
        if frame.f_code.co_filename.startswith(PACKAGE):
            names.append(frame.f_code.co_qualname)
        frame = frame.f_back
    return names[::-1]


def test_four_frames_stand_between_the_task_and_the_events_of_a_graph() -> None:
    frames: list[str] = []

    async def config(_turn: Turn) -> dict[str, Any]:
        frames.extend(own_frames())
        return {}

    graph = StateGraph(MessagesState).add_node("answer", lambda _state: {"messages": []}).add_edge(START, "answer")
    with AgentClient(LangGraphSource(graph.compile(), config=config)) as client:
        client.ask("Hello")
    before = frames[frames.index("WaitingTask._drive") : frames.index("LangGraphSource.events")]
    assert before == [
        "WaitingTask._drive",
        "_flushing_at_pauses",
        "FrameworkSource.drive",
        "AdapterSource.drive",
    ]
