"""What people do with an agent, written once for all frameworks: a model's answers, and what the page then shows.

Each script talks to a real client of the AI SDK, whose agent is that of `agents.py`. A framework that cannot do
something says so in its `limits`; the script then checks what it does instead.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from tests.adapters.agents import SECRET, Api, Deeds, Framework
from tests.conformance.http_client import Browser, Page, View, text_of
from tests.conformance.served import Served, eventually, serving
from tests.processor_waits import OwnTime
from usechat.server import ChatApp
from usechat.testing import ModelAnswer, ModelCall, ScriptedModel

Json = Any

_PROMPTLY: Final = 5.0
"""Seconds in which a stop must have its effect, also on a busy machine: what is stopped would take a hundred."""


class Chat:
    """A page that talks to a framework's agent, with the model behind it and what its tools did."""

    def __init__(self, framework: Framework, page: Page, model: ScriptedModel, served: Served, deeds: Deeds) -> None:
        self.framework = framework
        self.page = page
        self.model = model
        self.deeds = deeds
        self._served = served

    def ask(self, text: str, **more: Json) -> Json:
        """Send a message and return the answer."""
        self.page.call("sendMessage", {"text": text, **more})
        return self.page.answer()

    def fail(self, text: str, **more: Json) -> View:
        """Send a message whose turn fails; return how the page looks then."""
        self.page.call("sendMessage", {"text": text, **more})
        view = self.page.until(lambda view: view["calls"] == 0 and view["status"] == "error")
        assert SECRET not in json.dumps(view)
        return view

    def continued(self, method: str, *options: Json) -> Json:
        """Give answers to what waits; return the message when the page has posted by itself and the turn is over."""
        requests = len(self.page.look()["requests"])
        for option in options:
            self.page.call(method, option)
        self.page.until(lambda view: len(view["requests"]) == requests + 1)
        return self.page.answer()

    def stop(self, condition: Callable[[], object], what: str, *, seconds: float = _PROMPTLY) -> None:
        """Stop the turn at the server: the condition holds long before the turn would end by itself."""
        elapsed = OwnTime()
        self._served.post("/agent/api/chat/chat-1/stop")
        eventually(condition, what)
        assert elapsed.seconds < seconds
        self.page.until(lambda view: view["calls"] == 0 and view["status"] in ("ready", "error"))

    def tools(self) -> list[Json]:
        return [part for part in self.page.look()["messages"][-1]["parts"] if part["type"].startswith("tool-")]

    def asked(self, number: int = -1) -> str:
        """Return what a model was sent with one request, as JSON text."""
        return json.dumps(self.model.requests[number])


class Script(msgspec.Struct, frozen=True):
    """A conversation: what the model answers, one request after the other, and what happens."""

    name: str
    answers: Sequence[ModelAnswer | str]
    play: Callable[[Chat], None]
    approvals: bool = False
    """Whether it needs a client that knows approvals."""
    apis: frozenset[Api] = frozenset({"chat", "responses", "anthropic"})

    @contextmanager
    def chat(self, framework: Framework, api: Api, release: str, browser: Browser, **options: Any) -> Iterator[Chat]:
        """Serve the agent to a page; ``options`` are those of the app."""
        deeds = Deeds()
        with (
            ScriptedModel(self.answers) as model,
            serving({"agent": ChatApp(framework.make(model, api, deeds), **options)}) as served,
        ):
            yield Chat(framework, self.open(release, served, browser), model, served, deeds)
            assert model.refusals == []

    def open(self, release: str, served: Served, browser: Browser) -> Page:
        """Open a page of this client."""
        url = f"{served.url('agent')}?sdk={release}"
        return browser.open(release, url, chat_id="chat-1", automatic=["tools", "approvals"][: _majors(release)])


def _majors(release: str) -> int:
    """AI SDK 5 has no approvals to wait for."""
    return 1 if release.startswith("5") else 2


SCRIPTS: Final[list[Script]] = []
_Play = Callable[[Chat], None]


def script(name: str, *answers: ModelAnswer | str, **options: Any) -> Callable[[_Play], _Play]:
    """Add a script to the table."""

    def add(play: _Play) -> _Play:
        SCRIPTS.append(Script(name, answers, play, **options))
        return play

    return add


def shown(message: Json) -> list[Any]:
    """Return what a page shows of a message: texts, and tools with their outcome."""
    return [
        part["text"] if part["type"] in ("text", "reasoning") else (part["type"], part["state"], part.get("output"))
        for part in message["parts"]
        if part["type"] in ("text", "reasoning") or part["type"].startswith("tool-")
    ]


def words(view: View) -> str:
    """Return what the last message of a page says, thoughts included."""
    last = view["messages"][-1] if view["messages"] else {"role": "user"}
    return "".join(part for part in shown(last) if isinstance(part, str)) if last["role"] == "assistant" else ""


def calls(*model_calls: ModelCall, text: str = "") -> ModelAnswer:
    return ModelAnswer(calls=model_calls, text=text)


WEATHER = ModelCall("weather", {"city": "Paris"})
CLOCK = ModelCall("clock", {"zone": "CET"})
PARIS = ("tool-weather", "output-available", {"city": "Paris", "celsius": 21})
DELETE_A, DELETE_B = (ModelCall("delete", {"path": path}, id=f"call_{path}") for path in "ab")


@script("text", ModelAnswer(text=["It ", "is ", "sunny."]))
def _text(chat: Chat) -> None:
    message = chat.ask("How is the weather?")
    assert shown(message) == ["It is sunny."]
    if chat.framework.tells_usage:
        request_count = len(chat.model.requests)
        assert message["metadata"]["usage"] == {
            "inputTokens": 11 * request_count,
            "outputTokens": 7 * request_count,
            "totalTokens": 18 * request_count,
        }
    assert message["metadata"]["finishReason"] == "stop"
    assert "Be brief." in chat.asked()


@script(
    "reasoning",
    ModelAnswer(reasoning=["I need ", "the weather."], calls=[WEATHER]),
    ModelAnswer(reasoning="Easy.", text="It is 21 °C."),
    "You are welcome.",
    apis=frozenset({"responses", "anthropic"}),
)
def _reasoning(chat: Chat) -> None:
    message = chat.ask("How is the weather?")
    assert shown(message) == ["I need the weather.", PARIS, "Easy.", "It is 21 °C."]
    assert shown(chat.ask("Thanks.")) == ["You are welcome."]


@script("streamed tool input", calls(WEATHER, text="Let me look. "), "It is 21 °C.")
def _tool(chat: Chat) -> None:
    message = chat.ask("How is the weather?")
    assert chat.deeds.done == ["weather Paris"]
    if not chat.framework.shows_tools:
        assert shown(message) == ["Let me look. ", "It is 21 °C."]
        return
    preamble, *rest = shown(message)
    assert (preamble.strip(), rest) == ("Let me look.", [PARIS, "It is 21 °C."])
    [tool] = chat.tools()
    assert tool["input"] == {"city": "Paris"}


@script("two parallel tools", calls(WEATHER, CLOCK), "It is noon.")
def _parallel(chat: Chat) -> None:
    message = chat.ask("Weather and time?")
    noon = ("tool-clock", "output-available", {"zone": "CET", "hour": 12})
    tools = [PARIS, noon] if chat.framework.shows_tools else []
    ordered = list if chat.framework.keeps_order else sorted
    *parts, text = shown(message)
    assert (ordered(parts), text) == (ordered(tools), "It is noon.")
    assert sorted(chat.deeds.done) == ["clock CET", "weather Paris"]


SEARCH = ModelCall("web_search", {"query": "owls"}, output="https://example.com/owls")


@script(
    "a tool that the provider runs",
    ModelAnswer(calls=[SEARCH], text="Owls see well."),
    "They do.",
    apis=frozenset({"responses", "anthropic"}),
)
def _provided(chat: Chat) -> None:
    message = chat.ask("What about owls?")
    if "a tool that the provider runs" in chat.framework.limits:
        assert shown(message) == ["Owls see well."]
        assert shown(chat.ask("Do they?")) == ["They do."]
        return
    [tool] = chat.tools()
    assert (tool["type"], tool["state"], tool["providerExecuted"]) == ("tool-web_search", "output-available", True)
    assert tool["input"]["query"] == "owls"
    assert text_of(chat.page.look()) == "Owls see well."
    assert message["metadata"]["finishReason"] == "stop"
    assert shown(chat.ask("Do they?")) == ["They do."]


LOOKUP = ModelCall("lookup", {"topic": "owls"}, output='{"found": true}', server="docs")


@script(
    "a tool of an MCP server that the provider calls",
    ModelAnswer(calls=[LOOKUP], text="Owls see well."),
    apis=frozenset({"responses", "anthropic"}),
)
def _provided_mcp(chat: Chat) -> None:
    message = chat.ask("What about owls?")
    if "a tool of an MCP server that the provider calls" in chat.framework.limits:
        assert "Owls see well." in shown(message)
        return
    [tool] = [part for part in message["parts"] if part["type"] == "dynamic-tool"]
    assert (tool["toolName"], tool["state"], tool["input"]) == ("lookup", "output-available", {"topic": "owls"})
    assert text_of(chat.page.look()) == "Owls see well."


@script("an answer that is cut off", ModelAnswer(text="It is", is_cut_off=True))
def _cut_off(chat: Chat) -> None:
    if "an answer that is cut off" in chat.framework.limits:
        chat.page.send("How is the weather?")
        assert text_of(chat.page.settled()) == "It is"
        return
    message = chat.ask("How is the weather?")
    assert shown(message) == ["It is"]
    assert message["metadata"]["finishReason"] == "length"


@script("tool failure", calls(ModelCall("broken", {"reason": "test"})), "It did not work.", "Hello.")
def _tool_failure(chat: Chat) -> None:
    if "tool failure" in chat.framework.limits:
        chat.fail("Try it.")
        assert [tool["state"] for tool in chat.tools()] == [state for state in [chat.framework.failed_tool] if state]
        chat.page.call("sendMessage", {"text": "And now?"})
        chat.page.until(lambda view: text_of(view) == "It did not work.")
    else:
        message = chat.ask("Try it.")
        assert shown(message)[-1] == "It did not work."
        assert [tool["state"] for tool in chat.tools()] == ["output-error"]
        assert SECRET not in json.dumps(message)


@script("model failure before the answer", ModelAnswer(error=SECRET, status=500), "Hello.")
def _model_failure(chat: Chat) -> None:
    chat.fail("Hi.")
    assert shown(chat.ask("Hi again.")) == ["Hello."]


@script("model failure in mid-stream", ModelAnswer(text=["It "], error=SECRET, status=200), "Hello.")
def _broken_stream(chat: Chat) -> None:
    if "model failure in mid-stream" in chat.framework.limits:
        chat.ask("Hi.")
        assert text_of(chat.page.look()) == "It Hello."
        return
    assert words(chat.fail("Hi.")).strip() == "It"
    assert shown(chat.ask("Hi again.")) == ["Hello."]


@script("approval", calls(DELETE_A), "It is gone.", approvals=True)
def _approval(chat: Chat) -> None:
    if _cannot_pause(chat, "approval"):
        return
    chat.ask("Delete a.")
    [tool] = chat.tools()
    assert (tool["state"], chat.deeds.done) == ("approval-requested", [])
    message = chat.continued("addToolApprovalResponse", {"id": tool["approval"]["id"], "approved": True})
    assert shown(message) == [("tool-delete", "output-available", "a is gone"), "It is gone."]
    assert chat.deeds.done == ["delete a"]


@script("denial", calls(DELETE_A), "I left it.", approvals=True)
def _denial(chat: Chat) -> None:
    if _cannot_pause(chat, "denial"):
        return
    chat.ask("Delete a.")
    answer = {"id": chat.tools()[0]["approval"]["id"], "approved": False, "reason": "I need it."}
    message = chat.continued("addToolApprovalResponse", answer)
    assert shown(message) == [("tool-delete", "output-denied", None), "I left it."]
    assert chat.deeds.done == []
    assert ("I need it." in chat.asked()) is chat.framework.tells_reasons


@script("two approvals in reverse order", calls(DELETE_A, DELETE_B, WEATHER), "Only b is gone.", approvals=True)
def _two_approvals(chat: Chat) -> None:
    if chat.framework.asks_one_by_one:
        chat.ask("Delete a and b.")
        _one_by_one(chat)
        return
    if _cannot_pause(chat, "two approvals in reverse order"):
        return
    chat.ask("Delete a and b.")
    ids = {tool["toolCallId"]: tool["approval"]["id"] for tool in chat.tools() if tool["type"] == "tool-delete"}
    message = chat.continued(
        "addToolApprovalResponse",
        {"id": ids["call_b"], "approved": True},
        {"id": ids["call_a"], "approved": False},
    )
    outcomes = [(tool["toolCallId"], tool["state"]) for tool in chat.tools() if tool["type"] == "tool-delete"]
    assert outcomes == [("call_a", "output-denied"), ("call_b", "output-available")]
    assert shown(message)[-1] == "Only b is gone."
    assert sorted(chat.deeds.done) == ["delete b", "weather Paris"]


def _one_by_one(chat: Chat) -> None:
    [first] = chat.tools()
    assert (first["toolCallId"], first["state"]) == ("call_a", "approval-requested")
    chat.continued("addToolApprovalResponse", {"id": first["approval"]["id"], "approved": False})
    second = chat.tools()[-1]
    assert (second["toolCallId"], second["state"]) == ("call_b", "approval-requested")
    message = chat.continued("addToolApprovalResponse", {"id": second["approval"]["id"], "approved": True})
    states = [tool["state"] for tool in chat.tools()]
    assert states == ["output-denied", "output-available", "output-available"]
    assert shown(message)[-1] == "Only b is gone."
    assert sorted(chat.deeds.done) == ["delete b", "weather Paris"]


@script("a new message while an approval waits", calls(DELETE_A), "As you like.", "Yes.", approvals=True)
def _superseded(chat: Chat) -> None:
    if _cannot_pause(chat, "a new message while an approval waits"):
        return
    chat.ask("Delete a.")
    assert shown(chat.ask("Never mind.")) == ["As you like."]
    assert shown(chat.ask("Are you there?")) == ["Yes."]
    assert (len(chat.model.requests), chat.deeds.done) == (3, [])


def _cannot_pause(chat: Chat, name: str) -> bool:
    """Tell whether the framework cannot pause; then check that it runs the call, without asking."""
    if name not in chat.framework.limits:
        return False
    chat.ask("Delete a.")
    assert "delete a" in chat.deeds.done
    return True


@script("client tool", calls(ModelCall("location", {"exact": False}, id="call_l")), "You are in Paris.")
def _client_tool(chat: Chat) -> None:
    if chat.framework.question:
        _question(chat)
        return
    if "client tool" in chat.framework.limits:
        chat.fail("Where am I?")
        return
    chat.ask("Where am I?")
    [tool] = chat.tools()
    assert (tool["state"], tool["input"]) == ("input-available", {"exact": False})
    output = {"tool": "location", "toolCallId": "call_l", "output": "Paris"}
    message = chat.continued("addToolOutput", output)
    assert shown(message) == [("tool-location", "output-available", "Paris"), "You are in Paris."]
    assert "Paris" in chat.asked()


def _question(chat: Chat) -> None:
    """The agent asks the page in its own words, and goes on with the answer."""
    message = chat.ask("Where am I?")
    [question] = [part for part in message["parts"] if part["type"] == "dynamic-tool"]
    assert (question["toolName"], question["state"]) == (chat.framework.question, "input-available")
    assert question["input"] == {"message": "Where are you?"}
    chat.continued(
        "addToolOutput", {"tool": question["toolName"], "toolCallId": question["toolCallId"], "output": "Paris"}
    )
    assert text_of(chat.page.look()) == "You are in Paris."
    assert "Paris" in chat.asked()


@script("stop in text", ModelAnswer(text=["Once ", *["upon "] * 2000], pause=0.05), "Hello.")
def _stop_in_text(chat: Chat) -> None:
    chat.page.send("Tell me a story.")
    chat.page.until(lambda view: words(view).startswith("Once "))
    chat.stop(lambda: chat.model.disconnects == 1, "the model is left")
    assert shown(chat.ask("Hi.")) == ["Hello."]


@script("stop in a tool", calls(ModelCall("slow", {"task": "dig"})), "Hello.", "Goodbye.")
def _stop_in_a_tool(chat: Chat) -> None:
    chat.page.send("Dig.")
    eventually(lambda: chat.deeds.done == ["slow dig"], "the tool runs")
    if "stop in a tool" in chat.framework.limits:
        chat.stop(lambda: True, "the page does not wait for the tool")
        chat.deeds.released.set()
    else:
        chat.stop(lambda: chat.deeds.done == ["slow dig", "slow cancelled"], "the tool is cancelled")
    assert shown(chat.ask("Hi.")) == ["Hello."]
    assert shown(chat.ask("Bye.")) == ["Goodbye."]


@script("three turns", "One.", calls(WEATHER), "Two.", "Three.")
def _three_turns(chat: Chat) -> None:
    for number, answer in enumerate(("One.", "Two.", "Three."), 1):
        assert shown(chat.ask(f"Question {number}."))[-1] == answer
    prompt = chat.asked()
    results = [] if "three turns" in chat.framework.limits else ["celsius"]
    texts = ["Question 1.", "One.", "Question 2.", *results, "Two.", "Question 3."]
    assert sorted(texts, key=prompt.index) == texts


@script("regenerate", "One.", "Two.", "Three.", "Four.")
def _regenerate(chat: Chat) -> None:
    chat.ask("First.")
    chat.ask("Second.")
    chat.page.call("regenerate")
    assert shown(chat.page.answer()) == ["Three."]
    remembers = "regenerate" in chat.framework.limits
    assert ("Two." in chat.asked()) is remembers
    assert shown(chat.ask("Third.")) == ["Four."]
    assert [text in chat.asked() for text in ("One.", "Two.", "Three.")] == [True, remembers, True]


@script("edit", "One.", "Two.", "Three.", "Four.")
def _edit(chat: Chat) -> None:
    chat.ask("First.")
    chat.ask("Second.")
    edited = chat.page.look()["messages"][2]["id"]
    assert shown(chat.ask("Other.", messageId=edited)) == ["Three."]
    assert shown(chat.ask("Third.")) == ["Four."]
    prompt = chat.asked()
    remembers = "edit" in chat.framework.limits
    mentions = [text in prompt for text in ("Second.", "Two.", "Other.", "Three.")]
    assert mentions == [remembers, remembers, True, True]


@script("sub-agent", calls(ModelCall("research", {"topic": "owls"})), "Owls see well.", "They see.")
def _sub_agent(chat: Chat) -> None:
    message = chat.ask("What about owls?")
    result = (f"tool-{chat.framework.sub_agent_tool}", "output-available", "Owls see well.")
    if "sub-agent" in chat.framework.limits:
        assert shown(message) == [result, "They see."]
        return
    assert shown(message) == [result, "Owls see well.", "They see."]
    assert [part["data"] for part in message["parts"] if part["type"] == "data-agent"] == [
        {"name": chat.framework.sub_agent}
    ]


PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


PDF = "JVBERi0xLjQKJSVFT0YK"


@script("file", "A pixel.", "Nothing else.")
def _file(chat: Chat) -> None:
    files = [
        {"type": "file", "mediaType": "image/png", "filename": "a.png", "url": f"data:image/png;base64,{PIXEL}"},
        {
            "type": "file",
            "mediaType": "application/pdf",
            "filename": "a.pdf",
            "url": f"data:application/pdf;base64,{PDF}",
        },
        {"type": "file", "mediaType": "text/plain", "filename": "a.txt", "url": "data:text/plain,a%20plain%20note"},
    ]
    assert shown(chat.ask("What is this?", files=files)) == ["A pixel."]
    assert all(content in chat.asked() for content in (PIXEL, PDF, "a plain note"))
    assert shown(chat.ask("And what else?")) == ["Nothing else."]
    assert PIXEL in chat.asked()
    view = chat.fail("And this?", files=[{**files[0], "url": "http://169.254.169.254/a.png"}])
    assert "https" in str(view["error"])
