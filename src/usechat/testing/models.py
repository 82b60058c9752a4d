"""Models for agents under test: a server of three model APIs that follows a script and is as strict as the real ones.

An agent is pointed at :class:`ScriptedModel` with the base URL of its model client. Each request takes the next
:class:`ModelAnswer`. A history that the real API rejects is rejected in the same way, with its status and words: calls
without outputs, outputs without calls, outputs in the wrong place, missing ids. That is what agents get wrong when they
turn a chat's history into model messages.

The rules were written from the error texts of the APIs: OpenAI Chat Completions, OpenAI Responses, Anthropic Messages.
"""

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route, Router

from usechat.errors import InvalidSetting

__all__ = ["ModelAnswer", "ModelCall", "ScriptedModel"]

_Json: TypeAlias = dict[str, Any]
_PIECES: Final = 3
"""Into how many deltas the arguments of a call are cut."""
_USAGE: Final = (11, 7)
_SIGNATURE: Final = "signed"
"""The signature of every thinking block; another one is refused."""


class ModelCall(msgspec.Struct, frozen=True):
    """A tool that the model calls; without an ``id`` the call gets a new one.

    With ``output`` the provider runs the tool itself, and tells the result: a web search, or with ``server`` a tool of
    that MCP server. Chat Completions knows no such tools.

    >>> ModelCall("weather", {"city": "Paris"}).arguments
    {'city': 'Paris'}
    >>> search = ModelCall("web_search", {"query": "owls"}, output="https://example.com/owls")
    """

    name: str
    arguments: Any = {}
    id: str = ""
    output: str | None = None
    server: str | None = None


class ModelAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the model answers to one request: text, reasoning and calls, or a failure.

    ``text`` and ``reasoning`` may be lists, which are streamed piece by piece, with ``pause`` seconds before each piece
    of text. ``calls`` are the tools that the model calls. ``error`` with ``status`` is a refusal; with status 200 the
    stream ends with this error. With ``is_cut_off`` the answer ends because it has become too long; with ``is_refused``
    the text says why the model refuses to answer.

    >>> ModelAnswer(text=["It is ", "21."], reasoning="I know that.").texts
    ['It is ', '21.']
    >>> overloaded = ModelAnswer(error="Overloaded", status=529)
    """

    text: str | Sequence[str] = ""
    reasoning: str | Sequence[str] = ""
    calls: Sequence[ModelCall] = ()
    error: str | None = None
    status: int = 500
    is_cut_off: bool = False
    is_refused: bool = False
    pause: float = 0

    @property
    def texts(self) -> list[str]:
        """The pieces of the text."""
        return _pieces(self.text)

    @property
    def reasonings(self) -> list[str]:
        """The pieces of the reasoning."""
        return _pieces(self.reasoning)

    @property
    def provided(self) -> list[ModelCall]:
        """The calls that the provider runs itself."""
        return [call for call in self.calls if call.output is not None]

    @property
    def asked(self) -> list[ModelCall]:
        """The calls that the agent is asked to run."""
        return [call for call in self.calls if call.output is None]


def _pieces(text: str | Sequence[str]) -> list[str]:
    return [piece for piece in ([text] if isinstance(text, str) else text) if piece]


class _Refused(Exception):
    """A request that the API rejects."""

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.status = status


class ScriptedModel:
    """A server on a free port that answers model requests from a script; use it as a context manager.

    ``answers`` is the script: one for each request, in order; a text stands for a ``ModelAnswer`` of that text.
    ``openai_url`` is the base URL for OpenAI clients (Chat Completions and Responses), ``anthropic_url`` that for
    Anthropic's. ``requests`` holds the accepted bodies in order, ``refusals`` the texts of rejections (status 400), and
    ``disconnects`` counts the streams that a client left. When the script is over, requests fail.

    >>> import httpx2
    >>> question = {"model": "any", "messages": [{"role": "user", "content": "How warm is it?"}]}
    >>> with ScriptedModel([ModelAnswer(calls=[ModelCall("weather", {"city": "Paris"})]), "It is 21."]) as model:
    ...     answer = httpx2.post(f"{model.openai_url}/chat/completions", json=question).json()
    >>> answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"]
    'weather'
    """

    def __init__(self, answers: Sequence[ModelAnswer | str]) -> None:
        self._answers = [ModelAnswer(text=one) if isinstance(one, str) else one for one in answers]
        self.requests: list[_Json] = []
        self.refusals: list[str] = []
        self.disconnects = 0
        self._calls = 0
        self._responses: dict[str, list[_Json]] = {}
        self._reasoned: dict[str, str] = {}
        self._app = Router(
            routes=[
                Route("/v1/chat/completions", self._chat, methods=["POST"]),
                Route("/v1/responses", self._respond, methods=["POST"]),
                Route("/v1/messages", self._message, methods=["POST"]),
            ]
        )

    def __enter__(self) -> Self:
        import uvicorn

        self._listener = socket.create_server(("127.0.0.1", 0))
        # Agents seldom close the client of their model, and an idle connection that is left is a warning in a test.
        headers = [("connection", "close")]
        config = uvicorn.Config(
            self._app, log_config=None, lifespan="off", timeout_graceful_shutdown=1, headers=headers
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve, name="scripted model", daemon=True)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.005)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        asyncio.run(self._server.serve(sockets=[self._listener]))

    @property
    def openai_url(self) -> str:
        """The base URL for OpenAI clients."""
        return f"{self.anthropic_url}/v1"

    @property
    def anthropic_url(self) -> str:
        """The base URL for Anthropic clients."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def _next(self, body: _Json) -> ModelAnswer:
        self.requests.append(body)
        if not self._answers:
            raise _Refused("The scripted model has no more answers.", 500)
        answer = self._answers.pop(0)
        if answer.error is not None and answer.status != 200:
            raise _Refused(answer.error, answer.status)
        if answer.provided and "messages" in body and "max_tokens" not in body:
            raise InvalidSetting("Chat Completions has no tools that the provider runs")
        calls = [msgspec.structs.replace(call, id=call.id or self._new_id()) for call in answer.calls]
        return msgspec.structs.replace(answer, calls=calls)

    def _new_id(self) -> str:
        self._calls += 1
        return f"call_{self._calls}"

    def _openai_error(self, error: _Refused) -> Response:
        kind = {429: "rate_limit_exceeded", 400: "invalid_request_error"}.get(error.status, "server_error")
        return self._error({"error": {"message": str(error), "type": kind, "param": None, "code": None}}, error)

    def _error(self, body: _Json, error: _Refused) -> Response:
        if error.status == 400:
            self.refusals.append(str(error))
        return JSONResponse(body, error.status)

    def _events(self, events: AsyncIterator[_Json], *, named: bool = False, done: bytes = b"") -> Response:
        async def frames() -> AsyncIterator[bytes]:
            try:
                async for event in events:
                    name = f"event: {event['type']}\n" if named else ""
                    yield f"{name}data: {json.dumps(event)}\n\n".encode()
                yield done
            except (asyncio.CancelledError, GeneratorExit):
                self.disconnects += 1
                raise

        return StreamingResponse(frames(), media_type="text/event-stream")

    # -- OpenAI Chat Completions.

    async def _chat(self, request: Request) -> Response:
        try:
            body = await _read(request)
            _check_chat_messages(body.get("messages"))
            answer = self._next(body)
        except _Refused as error:
            return self._openai_error(error)
        if body.get("stream"):
            return self._events(_paced(_chat_chunks(body, answer), answer), done=b"data: [DONE]\n\n")
        message: _Json = {"role": "assistant", "content": None, _chat_text(answer): "".join(answer.texts) or None}
        if answer.reasonings:
            message["reasoning_content"] = "".join(answer.reasonings)
        if answer.calls:
            message["tool_calls"] = [_chat_call(call) for call in answer.calls]
        choice = {"index": 0, "message": message, "finish_reason": _chat_reason(answer), "logprobs": None}
        return JSONResponse(_chat_envelope(body, "chat.completion", [choice]) | {"usage": _chat_usage()})

    # -- OpenAI Responses.

    async def _respond(self, request: Request) -> Response:
        try:
            body = await _read(request)
            prompt = body.get("input")
            items = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
            previous = body.get("previous_response_id")
            if previous is not None and previous not in self._responses:
                raise _Refused(f"Previous response with id '{previous}' not found.")
            history = self._responses.get(previous, []) if previous else []
            _check_response_items([*history, *(items or [])], self._reasoned)
            answer = self._next(body)
        except _Refused as error:
            return self._openai_error(error)
        output = list(_response_output(answer, len(self.requests)))
        if output and output[0]["type"] == "reasoning" and "reasoning.encrypted_content" in (body.get("include") or ()):
            output[0]["encrypted_content"] = f"encrypted-{output[0]['id']}"
        if output and output[0]["type"] == "reasoning":
            self._reasoned |= {item["id"]: output[0]["id"] for item in output[1:]}
        response = _response_envelope(body, len(self.requests), output, "completed")
        self._responses[response["id"]] = [*history, *(items or []), *output]
        if body.get("stream"):
            return self._events(_paced(_response_events(response, answer), answer), named=True)
        return JSONResponse(response)

    # -- Anthropic Messages.

    async def _message(self, request: Request) -> Response:
        try:
            body = await _read(request)
            _check_anthropic(body)
            answer = self._next(body)
        except _Refused as error:
            kind = {429: "rate_limit_error", 529: "overloaded_error", 400: "invalid_request_error"}
            content = {"type": kind.get(error.status, "api_error"), "message": str(error)}
            return self._error({"type": "error", "error": content}, error)
        if body.get("stream"):
            return self._events(_paced(_anthropic_events(body, len(self.requests), answer), answer), named=True)
        return JSONResponse(
            _anthropic_message(body, len(self.requests), list(_anthropic_blocks(answer)), _anthropic_reason(answer))
        )


async def _read(request: Request) -> _Json:
    try:
        body = json.loads(await request.body())
    except ValueError:
        raise _Refused("We could not parse the JSON body of your request.") from None
    if not isinstance(body, dict) or not isinstance(body.get("model"), str):
        raise _Refused("you must provide a model parameter")
    return body


async def _paced(events: Iterator[_Json], answer: ModelAnswer) -> AsyncIterator[_Json]:
    for event in events:
        if answer.pause:
            await asyncio.sleep(answer.pause)
        yield event


def _cut(text: str) -> list[str]:
    """Cut a text into a few pieces, as models stream arguments."""
    size = max(1, -(-len(text) // _PIECES))
    return [text[start : start + size] for start in range(0, len(text), size)]


# -- OpenAI Chat Completions: what is accepted, and what is sent.


def _check_chat_messages(messages: Any) -> None:
    if not isinstance(messages, list) or not messages:
        raise _Refused("[] is too short - 'messages'")
    waiting: set[str] = set()
    for index, message in enumerate(messages):
        place, role = f"messages.[{index}]", message.get("role")
        if role not in ("system", "developer", "user", "assistant", "tool"):
            raise _Refused(f"Invalid value: '{role}'. Supported values are: 'system', 'assistant', 'user' and 'tool'.")
        if role == "tool":
            if message.get("tool_call_id") not in waiting:
                raise _Refused(
                    f"Invalid parameter: messages with role 'tool' must be a response to a preceeding message with"
                    f" 'tool_calls' ({place})."
                )
            waiting.discard(message["tool_call_id"])
            continue
        _check_all_answered(waiting)
        calls = message.get("tool_calls")
        if calls is not None and not calls:
            raise _Refused(f"Invalid '{place}.tool_calls': empty array. Expected an array with minimum length 1.")
        if message.get("content") is None and not calls:
            raise _Refused(f"Invalid value for 'content': expected a string, got null ({place}).")
        waiting = {_chat_call_id(call, f"{place}.tool_calls[{at}]") for at, call in enumerate(calls or [])}
    _check_all_answered(waiting)


def _check_all_answered(waiting: set[str]) -> None:
    if waiting:
        raise _Refused(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each"
            f" 'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(sorted(waiting))}"
        )


def _chat_call_id(call: Any, place: str) -> str:
    if not call.get("id"):
        raise _Refused(f"Missing required parameter: '{place}.id'.")
    if not isinstance(call.get("function", {}).get("arguments"), str):
        raise _Refused(f"Invalid type for '{place}.function.arguments': expected a string.")
    return str(call["id"])


def _chat_call(call: ModelCall) -> _Json:
    function = {"name": call.name, "arguments": json.dumps(call.arguments)}
    return {"id": call.id, "type": "function", "function": function}


def _chat_reason(answer: ModelAnswer) -> str:
    return "length" if answer.is_cut_off else "tool_calls" if answer.calls else "stop"


def _chat_text(answer: ModelAnswer) -> str:
    return "refusal" if answer.is_refused else "content"


def _chat_usage() -> _Json:
    return {"prompt_tokens": _USAGE[0], "completion_tokens": _USAGE[1], "total_tokens": sum(_USAGE)}


def _chat_envelope(body: _Json, kind: str, choices: list[_Json]) -> _Json:
    return {"id": "chatcmpl-1", "object": kind, "created": 1, "model": body["model"], "choices": choices}


def _chat_chunks(body: _Json, answer: ModelAnswer) -> Iterator[_Json]:
    def chunk(delta: _Json, reason: str | None = None) -> _Json:
        choice = {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}
        return _chat_envelope(body, "chat.completion.chunk", [choice])

    yield chunk({"role": "assistant", "content": ""})
    for piece in answer.reasonings:
        yield chunk({"reasoning_content": piece})
    for piece in answer.texts:
        yield chunk({_chat_text(answer): piece})
    for index, call in enumerate(answer.calls):
        tool_call = {
            "index": index,
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": ""},
        }
        yield chunk({"tool_calls": [tool_call]})
        for piece in _cut(json.dumps(call.arguments)):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    if answer.error is not None:
        yield {"error": {"message": answer.error, "type": "server_error", "param": None, "code": None}}
        return
    yield chunk({}, _chat_reason(answer))
    if (body.get("stream_options") or {}).get("include_usage"):
        yield _chat_envelope(body, "chat.completion.chunk", []) | {"usage": _chat_usage()}


# -- OpenAI Responses: what is accepted, and what is sent.


def _check_response_items(items: list[Any], reasoned: Mapping[str, str]) -> None:
    if not items:
        raise _Refused("Missing required parameter: 'input'.")
    _check_reasoning(items, reasoned)
    calls: dict[str, bool] = {}
    for index, item in enumerate(items):
        kind = item.get("type", "message")
        if kind == "function_call":
            if not item.get("call_id"):
                raise _Refused(f"Missing required parameter: 'input[{index}].call_id'.")
            calls[item["call_id"]] = False
        elif kind == "function_call_output":
            if item.get("call_id") not in calls:
                raise _Refused(f"No tool call found for function call output with call_id {item.get('call_id')}.")
            calls[item["call_id"]] = True
        elif kind == "reasoning":
            following = items[index + 1] if index + 1 < len(items) else {}
            if not _may_follow_reasoning(following):
                raise _Refused(
                    f"Item '{item.get('id')}' of type 'reasoning' was provided without its required following item."
                )
        elif kind == "message" and item.get("role") not in ("user", "assistant", "system", "developer"):
            raise _Refused(f"Invalid value: '{item.get('role')}'. Supported values are: 'assistant', 'user'.")
    unanswered = [call_id for call_id, is_answered in calls.items() if not is_answered]
    if unanswered:
        raise _Refused(f"No tool output found for function call {unanswered[0]}.")


def _may_follow_reasoning(item: _Json) -> bool:
    """Tell whether an item is what a model makes after its reasoning; one without a type is a message."""
    if item.get("type", "message") == "message":
        return item.get("role") == "assistant"
    return item["type"] in ("function_call", "reasoning")


def _check_reasoning(items: list[Any], reasoned: Mapping[str, str]) -> None:
    """Check that items come with the reasoning they were sent with; ``reasoned`` has its id by the item's."""
    ids = {item.get("id") for item in items}
    for item in items:
        needed = reasoned.get(item.get("id") or "")
        if needed is not None and needed not in ids:
            raise _Refused(
                f"Item '{item['id']}' of type '{item.get('type')}' was provided without its required 'reasoning' item:"
                f" '{needed}'."
            )


def _response_output(answer: ModelAnswer, number: int) -> Iterator[_Json]:
    if answer.reasonings:
        summary = [{"type": "summary_text", "text": "".join(answer.reasonings)}]
        yield {"type": "reasoning", "id": f"rs_{number}", "summary": summary}
    if answer.texts:
        text = "".join(answer.texts)
        content: _Json = {"type": "output_text", "text": text, "annotations": []}
        if answer.is_refused:
            content = {"type": "refusal", "refusal": text}
        message = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed"}
        yield {**message, "content": [content]}
    for call in answer.provided:
        yield _provided_item(call)
    for call in answer.asked:
        yield {
            "type": "function_call",
            "id": f"fc_{call.id}",
            "call_id": call.id,
            "name": call.name,
            "arguments": json.dumps(call.arguments),
            "status": "completed",
        }


def _provided_item(call: ModelCall) -> _Json:
    if call.server is None:
        action = {"type": "search", **call.arguments}
        return {"type": "web_search_call", "id": f"ws_{call.id}", "status": "completed", "action": action}
    place = {"id": f"mcp_{call.id}", "server_label": call.server, "name": call.name}
    return {"type": "mcp_call", **place, "arguments": json.dumps(call.arguments), "output": call.output, "error": None}


def _response_envelope(body: _Json, number: int, output: list[_Json], status: str) -> _Json:
    usage = {"input_tokens": _USAGE[0], "output_tokens": _USAGE[1], "total_tokens": sum(_USAGE)}
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1,
        "status": status,
        "model": body["model"],
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": body.get("tools", []),
        "error": None,
        "incomplete_details": None,
        "instructions": body.get("instructions"),
        "metadata": {},
        "temperature": 1.0,
        "top_p": 1.0,
        "usage": usage | details,
    }


def _response_events(response: _Json, answer: ModelAnswer) -> Iterator[_Json]:
    for number, event in enumerate(_response_steps(response, answer)):
        yield {**event, "sequence_number": number}


def _response_steps(response: _Json, answer: ModelAnswer) -> Iterator[_Json]:
    snapshot = {**response, "output": [], "status": "in_progress", "usage": None}
    yield {"type": "response.created", "response": snapshot}
    yield {"type": "response.in_progress", "response": snapshot}
    for index, item in enumerate(response["output"]):
        place = {"output_index": index, "item_id": item["id"]}
        empty: dict[str, _Json] = {
            "reasoning": {"summary": []},
            "message": {"content": []},
            "function_call": {"arguments": ""},
            "mcp_call": {"arguments": "", "output": None},
        }
        new_item = {**item, **empty.get(item["type"], {})} | ({"status": "in_progress"} if "status" in item else {})
        yield {"type": "response.output_item.added", "output_index": index, "item": new_item}
        yield from _response_item(item, place, answer)
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    if answer.error is not None:
        failure = {"code": "server_error", "message": answer.error}
        yield {"type": "response.failed", "response": {**snapshot, "status": "failed", "error": failure}}
        return
    if answer.is_cut_off:
        cut = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
        yield {"type": "response.incomplete", "response": {**response, **cut}}
        return
    yield {"type": "response.completed", "response": response}


def _response_item(item: _Json, place: _Json, answer: ModelAnswer) -> Iterator[_Json]:
    if item["type"] == "function_call":
        for piece in _cut(item["arguments"]):
            yield {"type": "response.function_call_arguments.delta", **place, "delta": piece}
        done = {"name": item["name"], "arguments": item["arguments"]}
        yield {"type": "response.function_call_arguments.done", **place, **done}
        return
    if item["type"] == "mcp_call":
        for piece in _cut(item["arguments"]):
            yield {"type": "response.mcp_call_arguments.delta", **place, "delta": piece}
        yield {"type": "response.mcp_call_arguments.done", **place, "arguments": item["arguments"]}
        return
    if item["type"] not in ("message", "reasoning"):
        return  # what a provider runs itself comes as a whole
    is_text = item["type"] == "message"
    whole = (item["content"] if is_text else item["summary"])[0]
    part = "content_part" if is_text else "reasoning_summary_part"
    text = whole["type"] if is_text else "reasoning_summary_text"
    field = "refusal" if text == "refusal" else "text"
    place = {**place, ("content_index" if is_text else "summary_index"): 0}
    logprobs: _Json = {"logprobs": []} if text == "output_text" else {}
    yield {"type": f"response.{part}.added", **place, "part": {**whole, field: ""}}
    for piece in answer.texts if is_text else answer.reasonings:
        yield {"type": f"response.{text}.delta", **place, "delta": piece, **logprobs}
    yield {"type": f"response.{text}.done", **place, field: whole[field], **logprobs}
    yield {"type": f"response.{part}.done", **place, "part": whole}


# -- Anthropic Messages: what is accepted, and what is sent.


def _check_anthropic(body: _Json) -> None:
    if not isinstance(body.get("max_tokens"), int):
        raise _Refused("max_tokens: Field required")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise _Refused("messages: at least one message is required")
    if messages[0].get("role") != "user":
        raise _Refused('messages: first message must use the "user" role')
    waiting: list[str] = []
    for index, message in enumerate(messages):
        place = f"messages.{index}"
        if message.get("role") not in ("user", "assistant"):
            raise _Refused(f"{place}.role: Input should be 'user' or 'assistant'")
        blocks = _anthropic_content(message, place)
        _check_results(blocks, waiting, message["role"], place)
        waiting = [_use_id(block, place) for block in blocks if block.get("type") == "tool_use"]
        if waiting and message["role"] != "assistant":
            raise _Refused(f"{place}: `tool_use` blocks can only be in `assistant` messages")
    if waiting:
        raise _unanswered(len(messages) - 1, waiting)
    if (body.get("thinking") or {}).get("type") == "enabled":
        _check_thinking(messages)


def _check_thinking(messages: list[Any]) -> None:
    """Check that the step which tools answer now begins with its thinking."""
    results = messages[-1].get("content")
    if len(messages) < 2 or not isinstance(results, list) or results[0].get("type") != "tool_result":
        return
    kind = messages[-2]["content"][0].get("type")
    if kind not in ("thinking", "redacted_thinking"):
        raise _Refused(
            f"messages.{len(messages) - 2}.content.0.type: Expected `thinking` or `redacted_thinking`, but found"
            f" `{kind}`. When `thinking` is enabled, a final `assistant` message must start with a thinking block."
        )


def _anthropic_content(message: _Json, place: str) -> list[_Json]:
    content = message.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not blocks:
        raise _Refused(f"{place}: all messages must have non-empty content")
    for at, block in enumerate(blocks):
        if block.get("type") == "text" and not str(block.get("text", "")).strip():
            raise _Refused(f"{place}.content.{at}: text content blocks must contain non-whitespace text")
        if block.get("type") == "thinking" and not block.get("signature"):
            raise _Refused(f"{place}.content.{at}.thinking.signature: Field required")
        if block.get("type") == "thinking" and block["signature"] != _SIGNATURE:
            raise _Refused(f"{place}.content.{at}: Invalid `signature` in `thinking` block")
    return list(blocks)


def _check_results(blocks: list[_Json], waiting: list[str], role: str, place: str) -> None:
    results = [block.get("tool_use_id") for block in blocks if block.get("type") == "tool_result"]
    unexpected = [result for result in results if result not in waiting]
    if unexpected:
        raise _Refused(
            f"{place}: unexpected `tool_use_id` found in `tool_result` blocks: {unexpected[0]}. Each `tool_result`"
            " block must have a corresponding `tool_use` block in the previous message."
        )
    come_first = all(block.get("type") == "tool_result" for block in blocks[: len(results)])
    missing = [call for call in waiting if call not in results or role != "user" or not come_first]
    if missing:
        raise _unanswered(int(place.removeprefix("messages.")) - 1, missing)


def _unanswered(index: int, calls: list[str]) -> _Refused:
    return _Refused(
        f"messages.{index}: `tool_use` ids were found without `tool_result` blocks immediately after:"
        f" {', '.join(calls)}. Each `tool_use` block must have a corresponding `tool_result` block in the next message."
    )


def _use_id(block: _Json, place: str) -> str:
    if not block.get("id"):
        raise _Refused(f"{place}: `tool_use` blocks must have an `id`")
    return str(block["id"])


def _anthropic_reason(answer: ModelAnswer) -> str:
    if answer.is_refused:
        return "refusal"
    return "max_tokens" if answer.is_cut_off else "tool_use" if answer.asked else "end_turn"


def _anthropic_blocks(answer: ModelAnswer) -> Iterator[_Json]:
    if answer.reasonings:
        yield {"type": "thinking", "thinking": "".join(answer.reasonings), "signature": _SIGNATURE}
    for call in answer.provided:
        yield from _provided_blocks(call)
    if answer.texts:
        yield {"type": "text", "text": "".join(answer.texts)}
    for call in answer.asked:
        yield {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}


def _provided_blocks(call: ModelCall) -> Iterator[_Json]:
    if call.server is None:
        call_id = f"srvtoolu_{call.id}"
        yield {"type": "server_tool_use", "id": call_id, "name": call.name, "input": call.arguments}
        page = {"type": "web_search_result", "url": call.output, "title": call.output, "encrypted_content": "e"}
        yield {"type": "web_search_tool_result", "tool_use_id": call_id, "content": [{**page, "page_age": None}]}
        return
    call_id = f"mcptoolu_{call.id}"
    use = {"id": call_id, "name": call.name, "server_name": call.server, "input": call.arguments}
    yield {"type": "mcp_tool_use", **use}
    text = [{"type": "text", "text": call.output}]
    yield {"type": "mcp_tool_result", "tool_use_id": call_id, "is_error": False, "content": text}


def _anthropic_message(body: _Json, number: int, content: list[_Json], reason: str | None) -> _Json:
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": content,
        "stop_reason": reason,
        "stop_sequence": None,
        "usage": {"input_tokens": _USAGE[0], "output_tokens": _USAGE[1]},
    }


def _anthropic_events(body: _Json, number: int, answer: ModelAnswer) -> Iterator[_Json]:
    yield {"type": "message_start", "message": _anthropic_message(body, number, [], None)}
    for index, block in enumerate(_anthropic_blocks(answer)):
        empty: Mapping[str, Any] = {"thinking": {"thinking": "", "signature": ""}, "text": {"text": ""}}.get(
            block["type"], {"input": {}} if "input" in block else {}
        )
        yield {"type": "content_block_start", "index": index, "content_block": {**block, **empty}}
        for delta in _anthropic_deltas(block, answer):
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    if answer.error is not None:
        yield {"type": "error", "error": {"type": "overloaded_error", "message": answer.error}}
        return
    ending = {"stop_reason": _anthropic_reason(answer), "stop_sequence": None}
    used = {"input_tokens": _USAGE[0], "output_tokens": _USAGE[1]}  # those of the whole message
    yield {"type": "message_delta", "delta": ending, "usage": used}
    yield {"type": "message_stop"}


def _anthropic_deltas(block: _Json, answer: ModelAnswer) -> Iterator[_Json]:
    match block["type"]:
        case "thinking":
            yield from ({"type": "thinking_delta", "thinking": piece} for piece in answer.reasonings)
            yield {"type": "signature_delta", "signature": block["signature"]}
        case "text":
            yield from ({"type": "text_delta", "text": piece} for piece in answer.texts)
        case _ if "input" in block:
            pieces = _cut(json.dumps(block["input"]))
            yield from ({"type": "input_json_delta", "partial_json": piece} for piece in pieces)
