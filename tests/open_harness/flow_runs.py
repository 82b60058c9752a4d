"""Runs flows for tests and reads their events: run ids become names such as `writer.1`, times are left out."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from usechat.open_harness.engine.runtime import FlowRuntime
from usechat.open_harness.runtime_protocol import Event, Snapshot

FLOWS: Final = Path(__file__).parents[2] / "examples" / "flows"
DEADLINE: Final = 60
"""Seconds after which a flow has not ended; a loaded machine is slow."""


class EventLog:
    """The events of a runtime."""

    def __init__(self, runtime: FlowRuntime) -> None:
        self.events: list[Event] = []
        runtime.on_event(self.events.append)

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events]

    def named(self) -> list[dict[str, Any]]:
        """Return the events without times, with names for run ids."""
        names: dict[str, str] = {}
        counts: Counter[str] = Counter()
        events = []
        for event in self.events:
            run_id, node = event.get("runId"), str(event.get("nodeId"))
            if run_id is not None and run_id not in names:
                counts[node] += 1
                names[run_id] = f"{node}.{counts[node]}"
            fields = {key: value for key, value in event.items() if key != "timestamp"}
            events.append({**fields, "runId": names[run_id]} if run_id is not None else fields)
        return events

    def brief(self) -> list[str]:
        """Return each event as one short text: its type, and whom it is about."""
        return [_brief(event) for event in self.named()]

    def of(self, *types: str) -> list[Event]:
        return [event for event in self.events if event["type"] in types]


def _brief(event: Mapping[str, Any]) -> str:
    about = event.get("runId") or event.get("nodeId") or event.get("status") or event.get("iteration")
    if event["type"] == "edge:fire":
        about = f"{event['from']}->{event['to']}"
    if event["type"] == "command:received":
        about = event["command"]["type"]
    return event["type"] if about is None else f"{event['type']} {about}"


async def run(flow: Any, flow_input: Mapping[str, Any] | None = None, **options: Any) -> tuple[EventLog, Snapshot]:
    """Run a flow to its end; one that does not end is stopped, and the test fails."""
    runtime = FlowRuntime(flow, **options)
    log = EventLog(runtime)
    async with asyncio.timeout(DEADLINE):
        return log, await runtime.run(flow_input)


def constant(node_id: str, value: Any = None, **fields: Any) -> dict[str, Any]:
    return {"id": node_id, "type": "constant", "input": {"value": value}, **fields}


def echo(node_id: str, text: str, **fields: Any) -> dict[str, Any]:
    return {"id": node_id, "type": "echo", "input": {"text": text}, **fields}


def python(node_id: str, function: str, **fields: Any) -> dict[str, Any]:
    """Return a node that runs a function of `flow_functions`."""
    more = fields.pop("input", {})
    name = f"tests.open_harness.flow_functions:{function}"
    return {"id": node_id, "type": "python", "input": {"function": name, **more}, **fields}


def edge(ends: str, **fields: Any) -> dict[str, Any]:
    source, target = ends.split("->")
    return {"from": source, "to": target, **fields}


def flow(*nodes: dict[str, Any], edges: tuple[dict[str, Any], ...] = (), **fields: Any) -> dict[str, Any]:
    return {"name": "test", "nodes": list(nodes), "edges": list(edges), **fields}
