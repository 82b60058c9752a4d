"""Open Harness: multi-node flows that answer a chat page."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from usechat.open_harness.adapter import OpenHarnessAdapter
    from usechat.open_harness.flow_file import load_flow
    from usechat.open_harness.flow_problems import InvalidFlow
    from usechat.open_harness.interface import Runtime
    from usechat.open_harness.node_context import NodeContext
    from usechat.open_harness.recording import Recorder
    from usechat.open_harness.recording_store import FileRecordings, SqliteRecordings
    from usechat.open_harness.registry import NodeRegistry, default_registry
    from usechat.open_harness.remote import RemoteRuntime
    from usechat.open_harness.runtime import FlowRuntime
    from usechat.open_harness.sessions_client import RemoteSessions
    from usechat.open_harness.sqlite_store import SqliteRunStore
    from usechat.open_harness.store import MemoryRunStore
    from usechat.open_harness.transport import OpenHarnessChatTransport
    from usechat.open_harness.websocket_server import runtime_app, serve_runtime

__all__ = [
    "FileRecordings",
    "FlowRuntime",
    "InvalidFlow",
    "MemoryRunStore",
    "NodeContext",
    "NodeRegistry",
    "OpenHarnessAdapter",
    "OpenHarnessChatTransport",
    "Recorder",
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
    "FileRecordings": "recording_store",
    "FlowRuntime": "runtime",
    "InvalidFlow": "flow_problems",
    "MemoryRunStore": "store",
    "NodeContext": "node_context",
    "NodeRegistry": "registry",
    "OpenHarnessAdapter": "adapter",
    "OpenHarnessChatTransport": "transport",
    "Recorder": "recording",
    "RemoteRuntime": "remote",
    "RemoteSessions": "sessions_client",
    "Runtime": "interface",
    "SqliteRecordings": "recording_store",
    "SqliteRunStore": "sqlite_store",
    "default_registry": "registry",
    "load_flow": "flow_file",
    "runtime_app": "websocket_server",
    "serve_runtime": "websocket_server",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
