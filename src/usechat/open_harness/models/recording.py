"""Recordings of agents: ask a model once, test for free afterwards."""

import asyncio
import hashlib
import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeAlias
from urllib.parse import quote

import msgspec

from usechat.open_harness.errors import AgentFailed
from usechat.open_harness.models.provider import Answer, Decision, Execution, Provider, StreamEvent
from usechat.open_harness.runtime_protocol import Event
from usechat.open_harness.threads import in_thread
from usechat.values import json_value

__all__ = [
    "FileRecordings",
    "Mode",
    "RecordedEvent",
    "Recorder",
    "Recording",
    "RecordingMetadata",
    "RecordingStore",
    "SqliteRecordings",
]


_APPROVAL: Final = "approval"
"""The type of a recorded event that holds the decision of a person about a tool call."""

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS recordings(id TEXT PRIMARY KEY, recording TEXT NOT NULL, created_at INTEGER NOT NULL)
"""


class RecordingStore(Protocol):
    """Stores the JSON texts of recordings by id. Both methods may block; they are called in threads.

    >>> class MemoryRecordings(dict):
    ...     def save(self, recording_id: str, text: str) -> None:
    ...         self[recording_id] = text
    ...
    ...     def load(self, recording_id: str) -> str | None:
    ...         return self.get(recording_id)
    >>> recordings: RecordingStore = MemoryRecordings()
    >>> recordings.save("writer-1", "{}")
    >>> recordings.load("writer-1")
    '{}'
    """

    def save(self, recording_id: str, text: str) -> None:
        """Store a recording; replace one with the same id."""
        ...

    def load(self, recording_id: str) -> str | None:
        """Return a recording, or ``None``."""
        ...


class FileRecordings:
    """Stores each recording as a JSON file in one folder. The files are meant to be committed with the tests.

    >>> recordings = FileRecordings("recordings")
    >>> recordings.save("writer-1", '{"events": []}')
    >>> recordings.load("writer-1"), recordings.load("writer-2")
    ('{"events": []}\\n', None)
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)

    def save(self, recording_id: str, text: str) -> None:
        """Write the file of a recording."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._path(recording_id).write_text(text + "\n", encoding="utf-8")

    def load(self, recording_id: str) -> str | None:
        """Read the file of a recording."""
        path = self._path(recording_id)
        return path.read_text(encoding="utf-8") if path.exists() else None

    def _path(self, recording_id: str) -> Path:
        # The id begins with that of a node, which may be any text.
        return self._folder / f"{quote(recording_id, safe=' ')}.json"


class SqliteRecordings:
    """Stores recordings in an SQLite file, which may be that of a :class:`SqliteRunStore`.

    >>> recordings = SqliteRecordings("recordings.db")
    >>> recordings.save("writer-1", '{"events": []}')
    >>> recordings.load("writer-1"), recordings.load("writer-2")
    ('{"events": []}', None)
    """

    def __init__(self, path: str | Path) -> None:
        self._path = path
        with closing(self._open()) as connection, connection:
            connection.execute(_SCHEMA)

    def save(self, recording_id: str, text: str) -> None:
        """Write a recording."""
        row = (recording_id, text, int(time.time() * 1000))
        with closing(self._open()) as connection, connection:
            connection.execute("INSERT OR REPLACE INTO recordings VALUES (?, ?, ?)", row)

    def load(self, recording_id: str) -> str | None:
        """Read a recording."""
        with closing(self._open()) as connection:
            row = connection.execute("SELECT recording FROM recordings WHERE id = ?", (recording_id,)).fetchone()
        return None if row is None else str(row[0])

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=10)


Mode: TypeAlias = Literal["live", "record", "replay"]


class RecordingMetadata(msgspec.Struct, rename="camel"):
    """What a recording is of."""

    provider_type: str
    created_at: str
    input_hash: str
    model: str | None = None
    tags: list[str] = []


class RecordedEvent(msgspec.Struct):
    """One event, with the milliseconds since the recording began."""

    seq: int
    timestamp: int
    event: dict[str, Any]


class Recording(msgspec.Struct):
    """All events of one invocation of an agent, and how it ended."""

    id: str
    metadata: RecordingMetadata
    events: list[RecordedEvent] = []
    output: dict[str, Any] | None = None
    error: dict[str, str] | None = None


class Recorder:
    """Records what models answer, and replays it without them.

    ``mode`` is ``record`` (ask the model and store its answer), ``replay`` (answer from the store, no model needed) or
    ``live`` (ask, store nothing). A recording is identified by node, number of the invocation and a hash of the
    question. Replaying what was not recorded fails the node. A person who was asked about a tool call is asked again;
    an answer other than the recorded one was not recorded.

    >>> recorder = Recorder("replay", FileRecordings("recordings"))
    >>> recorder.mode
    'replay'
    """

    def __init__(self, mode: Mode, store: RecordingStore) -> None:
        self.mode = mode
        self._store = store

    async def ask(
        self,
        provider: Provider,
        execution: Execution,
        *,
        node_id: str,
        invocation: int,
        emit: Callable[[Event], None],
    ) -> Answer:
        """Answer with the provider, or with a recording of one.

        ``node_id`` and ``invocation`` identify the recording; ``emit`` takes the event that names it.
        """
        if self.mode == "live":
            return await provider.execute(execution)
        input_hash = _input_hash(execution)
        recording_id = f"{node_id}-{invocation}-{input_hash[:16]}"
        emit(
            {
                "type": "recording:linked",
                "invocation": invocation,
                "providerType": provider.type,
                "recordingId": recording_id,
                "mode": self.mode,
            }
        )
        if self.mode == "replay":
            return await self._replay(recording_id, execution)
        return await self._record(
            Recording(recording_id, _metadata(provider, execution, input_hash)), provider, execution
        )

    async def _record(self, recording: Recording, provider: Provider, execution: Execution) -> Answer:
        began = time.monotonic()
        emit, ask = execution.emit, execution.ask

        def record(event: StreamEvent) -> None:
            elapsed = round((time.monotonic() - began) * 1000)
            recording.events.append(RecordedEvent(len(recording.events) + 1, elapsed, json_value(event)))

        def emit_and_record(event: StreamEvent) -> None:
            record(event)
            emit(event)

        async def ask_and_record(call_id: str) -> Decision:
            decision = await ask(call_id)
            record({"type": _APPROVAL, "id": call_id, "approved": decision.approved})
            return decision

        execution.emit, execution.ask = emit_and_record, ask_and_record
        try:
            answer = await provider.execute(execution)
        except AgentFailed as error:
            recording.error = {"code": error.error_type, "message": str(error)}
            raise
        else:
            recording.output = msgspec.to_builtins(answer)
            return answer
        finally:
            # An answer that was stopped is not recorded.
            if recording.output is not None or recording.error is not None:
                text = msgspec.json.format(msgspec.json.encode(recording)).decode()
                await in_thread(lambda: self._store.save(recording.id, text))

    async def _replay(self, recording_id: str, execution: Execution) -> Answer:
        text = await in_thread(lambda: self._store.load(recording_id))
        if text is None:
            raise AgentFailed("no_recording", f"there is no recording {recording_id}; run once with the mode record")
        try:
            recording = msgspec.json.decode(text, type=Recording)
        except msgspec.DecodeError as error:
            raise AgentFailed("no_recording", f"the recording {recording_id} cannot be read: {error}") from error
        for recorded in recording.events:
            if recorded.event["type"] == _APPROVAL:
                await _ask_again(recording_id, execution, recorded.event)
            else:
                execution.emit(recorded.event)
            await asyncio.sleep(0)
        if recording.error is not None:
            raise AgentFailed(recording.error["code"], recording.error["message"])
        return msgspec.convert(recording.output, Answer)


async def _ask_again(recording_id: str, execution: Execution, recorded: Mapping[str, Any]) -> None:
    decision = await execution.ask(recorded["id"])
    if decision.approved is not recorded["approved"]:
        was = "allowed" if recorded["approved"] else "denied"
        text = f"in the recording {recording_id} the call {recorded['id']} was {was}; run once with the mode record"
        raise AgentFailed("no_recording", text)


def _metadata(provider: Provider, execution: Execution, input_hash: str) -> RecordingMetadata:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return RecordingMetadata(provider.type, now, input_hash, execution.request.model)


def _input_hash(execution: Execution) -> str:
    """Return a hash of the question. Ids and times in the history are left out: they differ each time."""
    request = msgspec.to_builtins(execution.request)
    for key in ("output_schema", "options"):  # recordings from before there were these have the same hash
        if not request[key]:
            del request[key]
    question = [request, [_essence(message) for message in execution.history]]
    return hashlib.sha256(msgspec.json.encode(json_value(question), order="sorted")).hexdigest()


def _essence(message: Any) -> Any:
    parts = message.get("parts", ()) if isinstance(message, Mapping) else ()
    keys = ("part_kind", "content", "tool_name", "args")
    return [{key: part[key] for key in keys if key in part} for part in parts if isinstance(part, Mapping)]
