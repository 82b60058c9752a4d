"""Open Harness: multi-node flows that answer a chat page."""

from typing import TYPE_CHECKING

from usechat.lazy import lazy_names
from usechat.open_harness.errors import InvalidFlow

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
    "AgentRequest": "usechat.open_harness.models.provider",
    "Answer": "usechat.open_harness.models.provider",
    "Decision": "usechat.open_harness.models.provider",
    "Execution": "usechat.open_harness.models.provider",
    "FileRecordings": "usechat.open_harness.models.recording",
    "FlowRunStore": "usechat.open_harness.engine.store",
    "FlowRuntime": "usechat.open_harness.engine.runtime",
    "FlowRuntimes": "usechat.open_harness.engine.runtime",
    "Inbox": "usechat.open_harness.inbox",
    "MemoryRunStore": "usechat.open_harness.engine.store",
    "NodeContext": "usechat.open_harness.nodes.context",
    "NodeRegistry": "usechat.open_harness.nodes.registry",
    "OpenHarnessAdapter": "usechat.open_harness.events.adapter",
    "OpenHarnessChatTransport": "usechat.open_harness.transport",
    "PostgresRunStore": "usechat.open_harness.engine.postgres_store",
    "PromptMessage": "usechat.open_harness.models.provider",
    "Provider": "usechat.open_harness.models.provider",
    "Recorder": "usechat.open_harness.models.recording",
    "RecordingStore": "usechat.open_harness.models.recording",
    "RemoteRuntime": "usechat.open_harness.remote.flows",
    "RemoteSessions": "usechat.open_harness.remote.sessions",
    "Runtime": "usechat.open_harness.runtime_protocol",
    "SqliteRecordings": "usechat.open_harness.models.recording",
    "SqliteRunStore": "usechat.open_harness.engine.sqlite_store",
    "default_registry": "usechat.open_harness.nodes.builtin",
    "load_flow": "usechat.open_harness.flow.reading",
    "runtime_app": "usechat.open_harness.remote.server",
    "serve_runtime": "usechat.open_harness.remote.server",
}

__getattr__ = lazy_names(__name__, _HOMES)
