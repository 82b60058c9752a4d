"""Genkit before the real npm clients: in this process, behind genkit-fastapi, and behind @genkit-ai/express."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.genkit_servers import NodeServer, node_server, python_app
from tests.conformance.http_client import NEWEST, WITH_APPROVALS, Browser, Page, View, text_of
from tests.conformance.served import Served, serving
from tests.genkit import go_server, scripted
from usechat import parts as p
from usechat.genkit import GenkitChatTransport, Respond, agent_input, messages_input, stateless_agent_input, text_input
from usechat.server import ChatApp

PLACES = ("process", "python", "node")
STEP = ("step-start", None)
ROME, PARIS, OSLO = ({"city": city, "celsius": len(city)} for city in ("Rome", "Paris", "Oslo"))

every_release = pytest.mark.parametrize("release", NEWEST)
every_place = pytest.mark.parametrize("place", PLACES)


def statuses(chunk: Any) -> list[p.Part]:
    return [p.Data("status", chunk["status"])]


def flow_apps(place: str, flows: Any) -> dict[str, ChatApp]:
    """Return an app for each flow and agent; `flows` finds them."""
    remote: dict[str, Any] = {} if place == "process" else {"build_input": text_input}
    agents: dict[str, Any] = {} if place == "process" else {"build_input": agent_input}
    stateless: dict[str, Any] = {} if place == "process" else {"build_input": stateless_agent_input}
    transports = {
        "chatFlow": GenkitChatTransport(flows("chatFlow")),
        "echo": GenkitChatTransport(flows("echo"), **remote),
        "words": GenkitChatTransport(flows("words"), **remote),
        "statuses": GenkitChatTransport(flows("statuses"), map_chunk=statuses, **remote),
        "refusing": GenkitChatTransport(flows("refusing"), **remote),
        "helper": GenkitChatTransport(flows("helper"), **agents),
        "stateless": GenkitChatTransport(flows("stateless"), **stateless),
        "asking": GenkitChatTransport(flows("helper"), interrupts="approval", **agents),
        "data": GenkitChatTransport(flows("chatFlow"), send_data=True),
    }
    messages: dict[str, Any] = {} if place == "process" else {"build_input": messages_input}
    transports |= {
        "conversation": GenkitChatTransport(flows("conversation"), **messages),
        "asking-conversation": GenkitChatTransport(flows("conversation"), interrupts="approval", **messages),
    }
    return {f"{place}-{name}": ChatApp(transport) for name, transport in transports.items()}


OBJECTS = {
    "chatFlow": scripted.chat_flow,
    "helper": scripted.agent,
    **{
        name: getattr(scripted, name) for name in ("conversation", "echo", "words", "statuses", "refusing", "stateless")
    },
}


@pytest.fixture(scope="module")
def node() -> Iterator[NodeServer]:
    with node_server() as running:
        yield running


@pytest.fixture(scope="module")
def served(node: NodeServer) -> Iterator[Served]:
    with serving({"genkit": python_app(), "go": go_server.app()}) as python:
        places = {
            "process": OBJECTS.__getitem__,
            "python": lambda name: f"http://127.0.0.1:{python.port}/genkit/{name}",
            "node": node.url,
        }
        apps = {name: app for place, flows in places.items() for name, app in flow_apps(place, flows).items()}
        confirming = GenkitChatTransport(
            node.url("helper"),
            build_input=agent_input,
            interrupts="approval",
            map_approval=lambda approval: Respond({"confirmed": approval.approved}),
        )
        go = f"http://127.0.0.1:{python.port}/go/agent"
        go_apps = {
            "confirming": ChatApp(confirming),
            "go": ChatApp(GenkitChatTransport(go, build_input=agent_input)),
            "asking-go": ChatApp(GenkitChatTransport(go, build_input=agent_input, interrupts="approval")),
        }
        with serving(apps | go_apps) as running:
            yield running


def shown(view: View) -> list[tuple[str, Any]]:
    """Return the parts of the last message in short: kinds, and texts, outcomes or states."""
    return [
        (part["type"], part.get("text", part.get("output", part.get("errorText", part.get("data", part.get("state"))))))
        for part in view["messages"][-1]["parts"]
    ]


def asked(browser: Browser, served: Served, release: str, app: str, text: str, **options: Any) -> Page:
    suffix = f"?sdk={release}" if options.pop("named", False) else ""
    page = browser.open(release, served.url(app) + suffix, chat_id=f"{app}-{text}-{release}", **options)
    page.send(text)
    return page


def good(page: Page) -> View:
    """Wait for the end of a good turn."""
    view = page.settled()
    assert (view["status"], view["error"]) == ("ready", None)
    return view


@every_place
@every_release
def test_text_streams(browser: Browser, served: Served, release: str, place: str) -> None:
    view = good(asked(browser, served, release, f"{place}-chatFlow", "hello"))
    assert shown(view) == [STEP, ("text", "Hello")]
    assert view["messages"][-1]["metadata"] == {
        "finishReason": "stop",
        "usage": {"inputTokens": 3, "outputTokens": 5, "totalTokens": 8},
    }


@every_place
@every_release
def test_reasoning_keeps_its_signature(browser: Browser, served: Served, release: str, place: str) -> None:
    view = good(asked(browser, served, release, f"{place}-chatFlow", "think"))
    assert shown(view) == [STEP, ("reasoning", "I wonder."), ("text", "Yes.")]
    assert view["messages"][-1]["parts"][1]["providerMetadata"] == {"genkit": {"signature": "c2ln"}}


@pytest.mark.parametrize("place", ["process", "python"])  # the chunks of JavaScript lose `aggregated` (genkit 1.42.0)
@every_release
def test_chunks_that_repeat_everything_are_said_once(
    browser: Browser, served: Served, release: str, place: str
) -> None:
    view = good(asked(browser, served, release, f"{place}-chatFlow", "repeat"))
    parts = [STEP, ("reasoning", "Hm"), ("text", "Hello"), ("tool-weather", ROME), STEP, ("text", "Warm.")]
    assert shown(view) == parts


@every_place
@every_release
def test_two_parallel_tools_without_a_ref_keep_their_own_results(
    browser: Browser, served: Served, release: str, place: str
) -> None:
    view = good(asked(browser, served, release, f"{place}-chatFlow", "weather", automatic=["tools"]))
    tools = [("tool-weather", ROME), ("tool-weather", PARIS)]
    assert shown(view) == [STEP, ("text", "Let me look."), *tools, STEP, ("text", "It is warm.")]
    assert len(view["requests"]) == 1


@every_place
@every_release
def test_a_failed_tool_is_an_error_that_the_user_sees(
    browser: Browser, served: Served, release: str, place: str
) -> None:
    view = asked(browser, served, release, f"{place}-chatFlow", "broken", automatic=["tools"]).settled()
    assert view["status"] == "error"
    assert view["error"] is not None
    assert view["error"]["message"].startswith("The agent failed while it answered. Try again. Reference: ")
    assert "secret" not in str(view)
    assert view["messages"][-1]["parts"][-1]["state"] == "output-error"
    assert len(view["requests"]) == 1


@every_place
@every_release
def test_media_is_a_file_and_data_is_sent_when_asked_for(
    browser: Browser, served: Served, release: str, place: str
) -> None:
    kinds = [kind for kind, _ in shown(good(asked(browser, served, release, f"{place}-chatFlow", "picture")))]
    assert kinds == ["step-start", "file"]
    assert shown(good(asked(browser, served, release, f"{place}-data", "picture")))[-1] == (
        "data-genkit-data",
        {"answer": 42},
    )


@pytest.mark.parametrize(
    ("flow", "parts"),
    [
        ("echo", [STEP, ("text", "You said: hi")]),
        ("words", [STEP, ("text", "You said: hi")]),
        ("statuses", [("data-status", "looking"), STEP, ("text", "You said: hi")]),
    ],
)
@every_place
@every_release
def test_a_flow_may_stream_strings_or_chunks_of_its_own_or_nothing(
    browser: Browser, served: Served, release: str, place: str, flow: str, parts: list[Any]
) -> None:
    assert shown(good(asked(browser, served, release, f"{place}-{flow}", "hi"))) == parts


@every_place
@every_release
def test_a_flow_that_fails_in_the_middle_keeps_what_it_said(
    browser: Browser, served: Served, release: str, place: str
) -> None:
    view = asked(browser, served, release, f"{place}-refusing", "secret").settled()
    assert (view["status"], text_of(view)) == ("error", "Well, ")
    assert "secret of the server" not in str(view)


# Interrupts


WAITING = [STEP, ("text", "May I?"), ("tool-delete", "input-available"), ("tool-weather", OSLO)]


@every_place
@every_release
def test_an_interrupted_tool_of_a_flow_waits(browser: Browser, served: Served, release: str, place: str) -> None:
    view = good(asked(browser, served, release, f"{place}-chatFlow", "delete", automatic=["tools"]))
    assert shown(view) == WAITING
    assert view["messages"][-1]["metadata"]["finishReason"] == "tool-calls"
    assert len(view["requests"]) == 1


@pytest.mark.parametrize("agent", ["helper", "stateless", "conversation"])
@every_place
@every_release
def test_an_agent_goes_on_when_the_page_answers_its_interrupt(
    browser: Browser, served: Served, release: str, place: str, agent: str
) -> None:
    page = asked(browser, served, release, f"{place}-{agent}", "delete", automatic=["tools"])
    waiting = good(page)
    assert shown(waiting) == WAITING
    call_id = waiting["messages"][-1]["parts"][2]["toolCallId"]
    page.call("addToolOutput", {"tool": "delete", "toolCallId": call_id, "output": "by hand"})
    page.until(lambda view: len(view["requests"]) == 2)
    view = good(page)
    done = [("tool-delete", "by hand"), ("tool-weather", OSLO)]
    assert shown(view) == [STEP, ("text", "May I?"), *done, STEP, ("text", "Thanks.")]
    assert view["messages"][-1]["id"] == waiting["messages"][-1]["id"]
    assert len(view["requests"]) == 2


approvals = pytest.mark.parametrize("approved", [True, False])
asking = pytest.mark.parametrize("asking", ["asking", "asking-conversation"])


@approvals
@asking
@every_place
@pytest.mark.parametrize("release", WITH_APPROVALS)
def test_an_interrupt_can_be_an_approval(
    browser: Browser, served: Served, release: str, place: str, asking: str, approved: bool
) -> None:
    app = f"{place}-{asking}"
    page = browser.open(
        release, f"{served.url(app)}?sdk={release}", chat_id=f"{app}-{approved}-{release}", automatic=["approvals"]
    )
    page.send("delete")
    call = good(page)["messages"][-1]["parts"][2]
    assert call["state"] == "approval-requested"
    page.call("addToolApprovalResponse", {"id": call["approval"]["id"], "approved": approved})
    page.until(lambda view: len(view["requests"]) == 2)
    view = good(page)
    assert text_of(view) == "May I?Thanks."
    call = view["messages"][-1]["parts"][2]
    assert (call["state"], call.get("output")) == (
        ("output-available", "Rome is gone") if approved else ("output-denied", None)
    )


@approvals
@asking
@every_place
@every_release
def test_for_5_the_approval_is_a_tool_of_the_page(
    browser: Browser, served: Served, release: str, place: str, asking: str, approved: bool
) -> None:
    app = f"{place}-{asking}"
    url = f"{served.url(app)}?sdk=5"
    page = browser.open(release, url, chat_id=f"{app}-tool-{approved}-{release}", automatic=["tools"])
    page.send("delete")
    question = good(page)["messages"][-1]["parts"][-1]
    assert (question["type"], question["state"]) == ("tool-approval", "input-available")
    answer = {"tool": "approval", "toolCallId": question["toolCallId"], "output": {"approved": approved}}
    page.call("addToolOutput", answer)
    page.until(lambda view: len(view["requests"]) == 2)
    view = good(page)
    assert text_of(view) == "May I?Thanks."
    call = view["messages"][-1]["parts"][2]
    assert (call["type"], call["state"]) == ("tool-delete", "output-available" if approved else "output-error")
    assert len(view["requests"]) == 2


@approvals
@pytest.mark.parametrize("release", WITH_APPROVALS)
def test_an_interrupt_of_javascript_is_answered_by_a_mapped_approval(
    browser: Browser, served: Served, release: str, approved: bool
) -> None:
    """A restart of `defineInterrupt` would be interrupted again: it wants a response."""
    page = browser.open(
        release,
        f"{served.url('confirming')}?sdk={release}",
        chat_id=f"confirming-{approved}-{release}",
        automatic=["approvals"],
    )
    page.send("confirm")
    call = good(page)["messages"][-1]["parts"][2]
    page.call("addToolApprovalResponse", {"id": call["approval"]["id"], "approved": approved})
    page.until(lambda view: len(view["requests"]) == 2)
    view = good(page)
    assert text_of(view) == "May I?Thanks."
    call = view["messages"][-1]["parts"][2]
    assert (call["state"], call.get("output")) == (
        ("output-available", {"confirmed": True}) if approved else ("output-denied", None)
    )


# A scripted server that repeats what Go servers send: the real ones cannot be installed here


@every_release
def test_calls_that_get_their_refs_late_are_shown_once_and_sending_goes_on_by_itself(
    browser: Browser, served: Served, release: str
) -> None:
    page = asked(browser, served, release, "go", "delete", automatic=["tools"])
    waiting = good(page)
    states = [("tool-delete", "input-available"), ("tool-delete", "input-available")]
    assert shown(waiting) == [STEP, ("text", "May I?"), *states]
    for part, output in zip(waiting["messages"][-1]["parts"][2:], ("first", "second"), strict=True):
        page.call("addToolOutput", {"tool": "delete", "toolCallId": part["toolCallId"], "output": output})
    page.until(lambda view: len(view["requests"]) == 2)
    done = [("tool-delete", "first"), ("tool-delete", "second")]
    assert shown(good(page)) == [STEP, ("text", "May I?"), *done, STEP, ("text", "Thanks.")]


@pytest.mark.parametrize("release", WITH_APPROVALS)
def test_of_two_parallel_calls_one_is_allowed_and_one_denied(browser: Browser, served: Served, release: str) -> None:
    url = f"{served.url('asking-go')}?sdk={release}"
    page = browser.open(release, url, chat_id=f"go-approvals-{release}", automatic=["approvals"])
    page.send("delete")
    calls = good(page)["messages"][-1]["parts"][2:]
    for call, approved in zip(calls, (False, True), strict=True):
        page.call("addToolApprovalResponse", {"id": call["approval"]["id"], "approved": approved})
    page.until(lambda view: len(view["requests"]) == 2)
    denied, allowed = good(page)["messages"][-1]["parts"][2:4]
    assert (denied["state"], allowed["output"]) == ("output-denied", "Paris is gone")


@every_place
@every_release
def test_an_agent_remembers_what_was_said(browser: Browser, served: Served, release: str, place: str) -> None:
    page = asked(browser, served, release, f"{place}-helper", "hello")
    first = good(page)["messages"][-1]["metadata"]["genkit"]
    page.send("think")
    second = good(page)["messages"][-1]["metadata"]["genkit"]
    assert first["sessionId"] == second["sessionId"]
    assert first["snapshotId"] != second["snapshotId"]
    page.call("regenerate")
    page.until(lambda view: len(view["requests"]) == 3)
    assert shown(good(page)) == [STEP, ("reasoning", "I wonder."), ("text", "Yes.")]
