"""The ``agent`` and ``claude.agent`` nodes: their input, the question to the model, and its answer as events."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import msgspec

from usechat.errors import InvalidSetting, MissingDependency, UsechatError
from usechat.open_harness.engine.agent_sessions import AgentSession
from usechat.open_harness.errors import AgentFailed, NodeFailed
from usechat.open_harness.flow.definition import Place
from usechat.open_harness.models.claude_options import CLAUDE, KEYS, claude_problems
from usechat.open_harness.models.failures import agent_failure
from usechat.open_harness.models.provider import (
    MAXIMUM_TURNS,
    TOOL_TIMEOUT_MS,
    AgentRequest,
    Answer,
    Execution,
    PromptMessage,
    Provider,
    StreamEvent,
)
from usechat.open_harness.models.structured_output import provider_value, schema_problem, value_problems
from usechat.open_harness.nodes.context import NodeContext
from usechat.open_harness.nodes.python import import_function
from usechat.open_harness.nodes.registry import NodeRegistry
from usechat.open_harness.threads import in_thread

__all__ = ["AgentNode", "model_name", "read_request", "request_problems", "takes_message", "with_files"]

_logger: Final = logging.getLogger("usechat.open_harness")

_CLAUDE: Final = "anthropic:claude-sonnet-5"
_PYDANTIC_AI: Final = "pydantic-ai"
_LEVELS: Final = ("minimal", "low", "medium", "high", "xhigh", "max")
_NUMBERS: Final = ("toolTimeoutMs", "maxTurns")
_TEXTS: Final = ("model", "instructions", "systemPrompt")
_KNOWN: Final = frozenset(
    {*_NUMBERS, *_TEXTS, "files", "messages", "options", "output", "outputFormat", "prompt", "provider", "thinking"}
    | {"tools"}
)


class AgentNode:
    """Asks a model and streams its text, its thinking and its tools.

    pydantic-ai asks it, or Claude Code if the input has ``provider: claude``.

    The input holds ``prompt`` or ``messages``; with neither, or with an empty prompt, the agent takes the user's
    message and its files, as in Open Harness. It also holds ``model``, ``instructions``, ``tools``, ``thinking``,
    ``files``, ``toolTimeoutMs`` and ``maxTurns``; any of these may stand below ``options``. With a JSON schema in
    ``outputFormat`` or ``output.schema``, the output has a valid ``structuredOutput``. With ``claude``, the model is
    Claude by default.
    """

    def __init__(self, registry: NodeRegistry, *, claude: bool = False) -> None:
        self._registry = registry
        self._claude = claude

    def problems(self, fields: Mapping[str, Any]) -> Iterable[tuple[Place, str]]:
        """Yield the problems of the input. Keys that are not known are logged."""
        merged = _merged(fields)
        _warn_unused(frozenset(map(str, merged.keys() - (_KNOWN | KEYS if _is_claude(merged) else _KNOWN))))
        has_model = self._claude or self._registry.default_model is not None or self.has_own_provider
        return request_problems(fields, has_model=has_model)

    def model(self, fields: Mapping[str, Any]) -> Any:
        """Return the model that an input names, or the default model."""
        if _is_claude(_merged(fields)) and not self.has_own_provider:
            return (model_name(fields, claude=False) or _CLAUDE).removeprefix("anthropic:")
        return self._registry.model(model_name(fields, claude=self._claude)) or _CLAUDE

    def uses_pydantic_ai(self, fields: Mapping[str, Any]) -> bool:
        """Return whether pydantic-ai asks the model of an input."""
        return not self.has_own_provider and not _is_claude(_merged(fields))

    @property
    def has_own_provider(self) -> bool:
        """Whether something else than pydantic-ai answers."""
        return self._registry.provider is not None

    def require_model_library(self, fields: Mapping[str, Any]) -> None:
        """Raise MissingDependency if the package that answers is missing: when a flow is loaded, not later."""
        if self.has_own_provider:
            return
        if _is_claude(_merged(fields)):
            if find_spec("claude_agent_sdk") is None:
                raise MissingDependency("claude-agent-sdk", "claude")
        elif find_spec("pydantic_ai") is None:
            raise MissingDependency("pydantic-ai-slim", "pydantic-ai")

    async def run(self, fields: Mapping[str, Any], context: NodeContext) -> Any:
        """Ask, and return the answer: ``text``, ``usage``, ``sessionId`` and so on."""
        fields = _with_message(fields, context.flow_input)
        request = read_request(fields, claude=self._claude)
        session = await context.sessions.open(context.session_name)
        request = _resumed(request, session, context)
        model = self.model(fields)
        context.emit(
            {
                "type": "agent:start",
                "sessionId": session.session_id,
                "model": _name(model),
                "prompt": _prompt_of(request),
            }
        )
        execution = Execution(
            request,
            model=model,
            history=[] if request.conversation else session.messages,
            inbox=context.inbox,
            emit=_without_output(request.output_schema, lambda event: context.emit(_runtime_event(event))),
            ask=context.ask,
        )
        provider = self._registry.provider or _Models(CLAUDE if _is_claude(_merged(fields)) else _PYDANTIC_AI)
        answer = await self._ask(provider, execution, session, context)
        return _output(answer, session)

    async def _ask(
        self, provider: Provider, execution: Execution, session: AgentSession, context: NodeContext
    ) -> Answer:
        try:
            if context.recorder is None:
                answer = await provider.execute(execution)
            else:
                answer = await context.recorder.ask(
                    provider, execution, node_id=context.node_id, invocation=context.invocation, emit=context.emit
                )
        except asyncio.CancelledError:
            session.add(execution.unfinished, execution.begins)
            context.sessions.save(session)
            _emit_stopped(session, context)
            raise
        except UsechatError:
            raise
        except Exception as error:  # of a provider that is not ours
            raise agent_failure(error) from error
        _require_structured_output(execution.request, answer)
        session.add(answer.messages, execution.begins)
        context.sessions.save(session)
        result = _plain(answer)
        context.emit({"type": "agent:complete", "result": result.pop("text"), **result})
        return answer


def _without_output(
    schema: Mapping[str, Any] | None, emit: Callable[[StreamEvent], None]
) -> Callable[[StreamEvent], None]:
    return emit if schema is None else _OutputFilter(schema, emit)


class _OutputFilter:
    """Passes on what an agent with a schema says, without the text that is its structured output.

    Some providers let the model write the output as text, and the page gets the output as data. So a block that begins
    like a JSON object is held back until it has ended.
    """

    def __init__(self, schema: Mapping[str, Any], emit: Callable[[StreamEvent], None]) -> None:
        self._schema = schema
        self._emit = emit
        self._pieces: list[StreamEvent] = []
        self._is_open = False

    def __call__(self, event: StreamEvent) -> None:
        if event["type"] == "text" and event.get("delta"):
            if self._pieces or (not self._is_open and event["content"].lstrip().startswith("{")):
                self._pieces.append(event)
                return
            self._is_open = True
        elif event["type"] == "text":
            pieces, self._pieces, self._is_open = self._pieces, [], False
            if self._is_output(event["content"]):
                return
            for piece in pieces:
                self._emit(piece)
        self._emit(event)

    def _is_output(self, text: str) -> bool:
        try:
            value = msgspec.json.decode(text)
        except msgspec.DecodeError:
            return False
        return not value_problems(self._schema, provider_value(self._schema, value))


_imported: Final[dict[str, Any]] = {}


class _Models:
    """Imports a provider's module on first use, in a thread: that may take seconds, and a replay does not need it."""

    def __init__(self, name: str) -> None:
        self.type = name

    async def execute(self, execution: Execution) -> Answer:
        name = f"usechat.open_harness.models.{self.type.replace('-', '_')}"
        if name not in _imported:  # not sys.modules: a module is there while another thread still imports it
            _imported[name] = await in_thread(lambda: import_module(name))
        answer: Answer = await _imported[name].ask_model(execution)
        return answer


def _require_structured_output(request: AgentRequest, answer: Answer) -> None:
    """Raise AgentFailed if the structured output that was asked for is missing or does not follow its schema."""
    if request.output_schema is None:
        return
    if answer.structured_output is msgspec.UNSET:
        raise AgentFailed("structured_output", "the answer has no structured output, and its schema was given")
    if problems := value_problems(request.output_schema, answer.structured_output):
        raise AgentFailed("structured_output", f"the structured output does not follow its schema: {problems[0]}")


def _resumed(request: AgentRequest, session: AgentSession, context: NodeContext) -> AgentRequest:
    """Return the request of a resumed agent. If it had started to answer, the messages sent to it are the prompt."""
    if context.resume_message is None:
        return request
    texts, has_begun = [], session.has_begun
    while (command := context.inbox.next()) is not None:
        texts.append(str(command.get("message", command.get("content", ""))))
        session.begin_turn(command.get("messageId"))
    if has_begun:
        return msgspec.structs.replace(request, prompt="\n\n".join(texts), conversation=(), files=())
    return msgspec.structs.replace(request, prompt="\n\n".join([request.prompt, *texts]))


def _prompt_of(request: AgentRequest) -> str | list[str]:
    return (
        [*(message.text for message in request.conversation), request.prompt]
        if request.conversation
        else request.prompt
    )


def _runtime_event(event: StreamEvent) -> dict[str, Any]:
    if event["type"] == "tool":
        call = {"type": "agent:tool", "toolCallId": event["id"], "toolName": event["name"]}
        if event["phase"] == "start":
            return {**call, "toolInput": event["data"]}
        call |= {"toolInput": event.get("input"), "toolOutput": event["data"], "durationMs": event.get("durationMs", 0)}
        return call | {key: event[key] for key in ("error", "errorType") if key in event}
    kind = f"agent:{event['type']}:delta" if event.get("delta") else f"agent:{event['type']}"
    return {"type": kind, "content": event["content"]}


def _emit_stopped(session: AgentSession, context: NodeContext) -> None:
    if context.stop_reason == "pause":
        context.emit({"type": "agent:paused", "sessionId": session.session_id})
    elif context.stop_reason == "abort":
        context.emit({"type": "agent:aborted", "reason": "stopped"})


def _output(answer: Answer, session: AgentSession) -> dict[str, Any]:
    return {**_plain(answer), "sessionId": session.session_id}


def _plain(answer: Answer) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(answer)
    del plain["messages"]
    return plain


def _name(model: Any) -> str:
    return model if isinstance(model, str) else str(getattr(model, "model_name", type(model).__name__))


# The input of a node, read into one form


def request_problems(fields: Mapping[str, Any], *, has_model: bool) -> Iterable[tuple[Place, str]]:
    """Yield the problems of an agent's input, which may still hold bindings."""
    prompt, messages = fields.get("prompt"), fields.get("messages")
    if prompt is not None and messages is not None:
        yield ("prompt",), "an agent takes either prompt (a text) or messages (a list), not both"
    elif prompt is not None and not isinstance(prompt, str):
        yield ("prompt",), "must be a text"
    elif messages is not None and not (isinstance(messages, str) or _is_list(messages)):
        yield ("messages",), "must be a list"
    options = fields.get("options")
    if options is not None and not isinstance(options, Mapping):
        yield ("options",), "must be an object"
    merged = _merged(fields)
    if merged.get("provider") not in (None, CLAUDE, _PYDANTIC_AI):
        yield ("provider",), f"must be {CLAUDE} or {_PYDANTIC_AI}"
    if not has_model and not _is_claude(merged) and merged.get("model") is None:
        yield ("model",), "is missing; it is the name of a model, such as openai:gpt-5"
    for key in _TEXTS:
        is_preset = key == "systemPrompt" and _is_claude(merged) and isinstance(merged.get(key), Mapping)
        if merged.get(key) is not None and not isinstance(merged[key], str) and not is_preset:
            yield (key,), "must be a text"
    for key in _NUMBERS:
        number = merged.get(key)
        if number is not None and (isinstance(number, bool) or not isinstance(number, int | float) or number <= 0):
            yield (key,), "must be a number above 0"
    if merged.get("thinking") not in (None, True, False, *_LEVELS):
        yield ("thinking",), f"must be true, false or one of {', '.join(_LEVELS)}"
    yield from claude_problems(merged) if _is_claude(merged) else _tool_problems(merged.get("tools"))
    yield from _schema_problems(merged)


def takes_message(fields: Mapping[str, Any]) -> bool:
    """Return whether an agent with this input is asked the user's message: it has no prompt, or an empty one."""
    return fields.get("messages") is None and not str(fields.get("prompt") or "").strip()


def _with_message(fields: Mapping[str, Any], flow_input: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the input with the user's message and its files, if it says nothing itself."""
    if not takes_message(fields):
        return fields
    message, files = flow_input.get("message"), flow_input.get("files")
    if not message and not files:
        raise NodeFailed("input.prompt: is empty, and the flow got no message")
    own_files = {} if "files" in _merged(fields) else {"files": files}
    return {**fields, **own_files, "prompt": message or ""}


def _schema_problems(merged: Mapping[str, Any]) -> Iterable[tuple[Place, str]]:
    key = "outputFormat" if merged.get("outputFormat") is not None else "output"
    if merged.get(key) is None:
        return
    schema = _output_schema(merged)
    if schema is None:
        yield (key,), "must be an object with the key schema, a JSON schema"
    elif problem := schema_problem(schema):
        yield (key, "schema"), problem


def _output_schema(merged: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the schema of ``outputFormat: {type: json_schema, schema}`` or ``output: {schema}``."""
    for key in ("outputFormat", "output"):
        described = merged.get(key)
        if isinstance(described, Mapping) and isinstance(described.get("schema"), Mapping):
            schema: Mapping[str, Any] = described["schema"]
            return schema
    return None


_FILES: Final = {"promptFile": "prompt", "promptTemplateFile": "prompt", "outputSchemaFile": "outputFormat"}


def with_files(fields: Mapping[str, Any], directory: Path) -> dict[str, Any]:
    """Return an agent's input with the content of the files that it names; the flow file is in ``directory``.

    Names are relative to the flow file or, as in Open Harness, to the working directory. Bindings in a prompt's file
    work. Raises InvalidSetting for a file that cannot be read.
    """
    read: dict[str, Any] = {}
    for key, value in fields.items():
        if key == "options" and isinstance(value, Mapping):
            read |= with_files(value, directory)
        elif key in _FILES:
            read.setdefault(_FILES[key], _content(key, value, directory))
    others = {key: value for key, value in fields.items() if key not in _FILES}
    if isinstance(others.get("options"), Mapping):
        others["options"] = {key: value for key, value in others["options"].items() if key not in _FILES}
    return {**read, **others}


def _content(key: str, name: Any, directory: Path) -> Any:
    if not isinstance(name, str) or "{{" in name:
        raise InvalidSetting(f"{key} must be the path of a file, without bindings")
    paths = [path for path in (directory / name, Path(name)) if path.is_file()]
    if not paths:
        raise InvalidSetting(f"{key}: there is no file {name} in {directory} or in the working directory")
    try:
        text = paths[0].read_text(encoding="utf-8")
        return text if _FILES[key] == "prompt" else {"type": "json_schema", "schema": msgspec.json.decode(text)}
    except (OSError, UnicodeDecodeError, msgspec.DecodeError) as error:
        raise InvalidSetting(f"{key}: {name} cannot be read: {error}") from error


def _tool_problems(tools: Any) -> Iterable[tuple[Place, str]]:
    if tools is None:
        return
    if not _is_list(tools):
        yield ("tools",), "must be a list of texts such as my_module:my_function"
        return
    for index, name in enumerate(tools):
        try:
            import_function(name)
        except InvalidSetting as error:
            yield ("tools", index), str(error)


def read_request(fields: Mapping[str, Any], *, claude: bool) -> AgentRequest:
    """Return the request that a resolved input without problems makes."""
    merged = _merged(fields)
    options = {key: merged[key] for key in KEYS if key in merged} if _is_claude(merged) else {}
    prompt = merged.get("instructions") or merged.get("systemPrompt")
    if isinstance(prompt, Mapping):  # a preset of Claude Code
        options, prompt = {**options, "systemPrompt": prompt}, None
    *conversation, last = _conversation(fields)
    if last.role != "user":
        raise NodeFailed("input.messages: the last message must be the user's")
    return AgentRequest(
        model_name(fields, claude=claude),
        last.text,
        tuple(conversation),
        tuple(file for file in merged.get("files") or () if isinstance(file, Mapping)),
        prompt,
        tuple(merged.get("tools") or ()),
        merged.get("thinking"),
        merged.get("toolTimeoutMs") or TOOL_TIMEOUT_MS,
        int(merged.get("maxTurns") or MAXIMUM_TURNS),
        _output_schema(merged),
        options,
    )


@cache
def _warn_unused(names: frozenset[str]) -> None:
    """Log, once per set of names, that options of Open Harness's own agent are ignored."""
    if names:
        _logger.warning("agents ignore the options %s", ", ".join(sorted(names)))


def _is_claude(merged: Mapping[str, Any]) -> bool:
    return merged.get("provider") == CLAUDE


def _merged(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields together with those below ``options``, where Open Harness flows have them."""
    options = fields.get("options")
    return {**(options if isinstance(options, Mapping) else {}), **fields}


def model_name(fields: Mapping[str, Any], *, claude: bool) -> str | None:
    """Return the name of the model in an input, as pydantic-ai spells it: Open Harness flows say claude-sonnet-5."""
    name: str | None = _merged(fields).get("model")
    return f"anthropic:{name}" if claude and name and name.startswith("claude") and ":" not in name else name


def _conversation(fields: Mapping[str, Any]) -> list[PromptMessage]:
    """Return the conversation. Consecutive messages of one role are joined; those without a role are the user's."""
    if fields.get("prompt") is not None:
        return [PromptMessage("user", str(fields["prompt"]))]
    conversation: list[PromptMessage] = []
    for message in fields["messages"]:
        role, text = _role(message), _text(message)
        if conversation and conversation[-1].role == role:
            conversation[-1] = PromptMessage(role, f"{conversation[-1].text}\n\n{text}")
        elif role in ("user", "assistant"):
            conversation.append(PromptMessage(role, text))
    if not conversation:
        raise NodeFailed("input.messages: must hold at least one message")
    return conversation


def _role(message: Any) -> str:
    if not isinstance(message, Mapping):
        return "user"
    inner = message.get("message")
    return str(message.get("role") or (inner.get("role") if isinstance(inner, Mapping) else None) or "user")


def _text(message: Any) -> str:
    """Return the text of a string, of a message with content or parts, or of a message within a message."""
    if isinstance(message, str):
        return message
    if _is_list(message):
        return "".join(_text(part) for part in message)
    if not isinstance(message, Mapping):
        return ""
    for key in ("text", "content", "parts", "message"):
        if message.get(key) is not None:
            return _text(message[key]) if message.get("type") in (None, "text", "user", "assistant") else ""
    return ""


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)
