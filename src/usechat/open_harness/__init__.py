"""Open Harness: multi-node flows that answer a chat page."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from usechat.errors import InvalidFlow

if TYPE_CHECKING:
    from usechat.open_harness.engine.postgres_store import PostgresRunStore
    from usechat.open_harness.engine.runtime import FlowRuntime, FlowRuntimes
    from usechat.open_harness.engine.sqlite_store import SqliteRunStore
    from usechat.open_harness.engine.store import FlowRunStore, MemoryRunStore
    from usechat.open_harness.events.adapter import OpenHarnessAdapter
    from usechat.open_harness.flow.reading import load_flow
    from usechat.open_harness.inbox import Inbox
    from usechat.open_harness.models.provider import AgentRequest, Answer, Decision, Execution, PromptMessage, Provider
    from usechat.open_harness.models.recording import FileRecordings, Recorder, RecordingStore, SqliteRecordings
    from usechat.open_harness.nodes.builtin import default_registry
    from usechat.open_harness.nodes.context import NodeContext
    from usechat.open_harness.nodes.registry import NodeRegistry
    from usechat.open_harness.remote.flows import RemoteRuntime
    from usechat.open_harness.remote.server import runtime_app, serve_runtime
    from usechat.open_harness.remote.sessions import RemoteSessions
    from usechat.open_harness.runtime_protocol import Runtime
    from usechat.open_harness.transport import OpenHarnessChatTransport

__all__ = [
    "AgentRequest",
    "Answer",
    "Decision",
    "Execution",
    "FileRecordings",
    "FlowRunStore",
    "FlowRuntime",
    "FlowRuntimes",
    "Inbox",
    "InvalidFlow",
    "MemoryRunStore",
    "NodeContext",
    "NodeRegistry",
    "OpenHarnessAdapter",
    "OpenHarnessChatTransport",
    "PostgresRunStore",
    "PromptMessage",
    "Provider",
    "Recorder",
    "RecordingStore",
    "RemoteRuntime",
    "RemoteSessions",
    "Runtime",
    "SqliteRecordings",
    "SqliteRunStore",
    "default_registry",
    "load_flow",
    "runtime_app",
    "serve_runtime",
]

# Imported on use: a remote flow needs no JSONata, a local one no HTTP client.
_HOMES = {
    "AgentRequest": "models.provider",
    "Answer": "models.provider",
    "Decision": "models.provider",
    "Execution": "models.provider",
    "FileRecordings": "models.recording",
    "FlowRunStore": "engine.store",
    "FlowRuntime": "engine.runtime",
    "FlowRuntimes": "engine.runtime",
    "Inbox": "inbox",
    "MemoryRunStore": "engine.store",
    "NodeContext": "nodes.context",
    "NodeRegistry": "nodes.registry",
    "OpenHarnessAdapter": "events.adapter",
    "OpenHarnessChatTransport": "transport",
    "PostgresRunStore": "engine.postgres_store",
    "PromptMessage": "models.provider",
    "Provider": "models.provider",
    "Recorder": "models.recording",
    "RecordingStore": "models.recording",
    "RemoteRuntime": "remote.flows",
    "RemoteSessions": "remote.sessions",
    "Runtime": "runtime_protocol",
    "SqliteRecordings": "models.recording",
    "SqliteRunStore": "engine.sqlite_store",
    "default_registry": "nodes.builtin",
    "load_flow": "flow.reading",
    "runtime_app": "remote.server",
    "serve_runtime": "remote.server",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
