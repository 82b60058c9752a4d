"""What a flow is given of a chat."""

import uuid
from typing import Any

import pytest

from tests.genkit.asking import assistant, turn, user
from usechat.errors import InvalidSetting, PublicError
from usechat.genkit import Approval, GenkitChatTransport, Respond, Restart, respond_to
from usechat.genkit.history import known_calls
from usechat.genkit.inputs import (
    FlowInput,
    agent_input,
    history_input,
    mapped_input,
    messages_input,
    session_id,
    stateless_agent_input,
    text_input,
)
from usechat.turn import Identity

pytestmark = pytest.mark.quick

SESSION = str(uuid.uuid5(uuid.NAMESPACE_URL, "c1"))
STEP = {"type": "step-start"}
THOUGHT = {"type": "reasoning", "text": "Hm", "providerMetadata": {"genkit": {"signature": "s"}}}
PICTURE = {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,AA"}
MEDIA = {"url": "data:image/png;base64,AA", "contentType": "image/png"}
SAID = {"type": "text", "text": "Warm."}


def call(call_id: str, state: str, name: str = "weather", **more: Any) -> dict[str, Any]:
    return {"type": f"tool-{name}", "toolCallId": call_id, "state": state, "input": {"city": "Rome"}, **more}


DONE = call("r1", "output-available", output={"celsius": 4})
FAILED = call("genkit-1", "output-error", errorText="It failed.")
WEATHER = {"name": "weather", "input": {"city": "Rome"}}


async def test_a_text_is_the_last_message() -> None:
    assert text_input(turn(user("one"), assistant(SAID), user("two"))) == FlowInput("two")


async def test_a_history_has_the_roles_user_and_model() -> None:
    system = {"id": "s", "role": "system", "parts": [SAID]}
    user_turn = turn(system, user("one"), assistant(STEP, DONE), assistant(STEP, SAID), user("two"))
    history = [{"role": "user", "content": "one"}, {"role": "model", "content": "Warm."}]
    assert history_input(user_turn) == FlowInput({"message": "two", "conversationHistory": history})


async def test_messages_are_genkit_s_own() -> None:
    user_turn = turn(
        user("one", PICTURE),
        assistant(
            STEP, THOUGHT, DONE, FAILED, call("open", "input-available"), STEP, SAID, {"type": "data-x", "data": 1}
        ),
        user("two"),
    )
    assert messages_input(user_turn).data == {
        "messages": [
            {"role": "user", "content": [{"text": "one"}, {"media": MEDIA}]},
            {
                "role": "model",
                "content": [
                    {"reasoning": "Hm", "metadata": {"signature": "s"}},
                    {"toolRequest": {**WEATHER, "ref": "r1"}},
                    {"toolRequest": WEATHER},
                ],
            },
            {
                "role": "tool",
                "content": [
                    {"toolResponse": {"name": "weather", "ref": "r1", "output": {"celsius": 4}}},
                    {"toolResponse": {"name": "weather", "output": {"error": "It failed."}}},
                ],
            },
            {"role": "model", "content": [{"text": "Warm."}]},
            {"role": "user", "content": [{"text": "two"}]},
        ]
    }


ANSWERED = call("genkit-2", "output-available", "ask", output="blue")


async def test_messages_that_go_on_after_a_tool_of_the_page_end_in_its_request() -> None:
    data = messages_input(turn(user("one"), assistant(STEP, DONE, STEP, ANSWERED))).data
    assert [message["role"] for message in data["messages"]] == ["user", "model", "tool", "model"]
    assert data["messages"][-1]["content"] == [{"toolRequest": {"name": "ask", "input": {"city": "Rome"}}}]
    assert data["resume"] == {"respond": [{"toolResponse": {"name": "ask", "output": "blue"}}]}


async def test_what_other_tools_of_that_step_returned_is_pending() -> None:
    approved = {"approval": {"id": "x", "approved": True, "reason": "fine"}}
    waiting = call("genkit-3", "approval-responded", "delete", **approved)
    user_turn = turn(user("one"), assistant(STEP, waiting, DONE), pending_calls=frozenset({"genkit-3"}))
    data = messages_input(user_turn).data
    request = {"name": "delete", "input": {"city": "Rome"}}
    restart = [{"toolRequest": request, "metadata": {"resumed": {"approved": True, "reason": "fine"}}}]
    assert data["resume"] == {"restart": restart}
    pending = {"toolRequest": {**WEATHER, "ref": "r1"}, "metadata": {"pendingOutput": {"celsius": 4}}}
    assert data["messages"][-1] == {"role": "model", "content": [{"toolRequest": request}, pending]}


async def test_a_new_message_for_an_agent_names_the_session() -> None:
    message = {"role": "user", "content": [{"text": "two"}]}
    assert agent_input(turn(user("one"), assistant(SAID), user("two"))) == FlowInput(
        {"message": message}, {"sessionId": SESSION}
    )


@pytest.mark.parametrize(
    ("more", "init"),
    [
        ({"trigger": "regenerate-message"}, {"snapshotId": "s1"}),
        ({"messageId": "u2"}, {"snapshotId": "s1"}),
        ({}, {}),
    ],
)
async def test_a_regenerated_answer_goes_on_from_the_snapshot_before_it(
    more: dict[str, Any], init: dict[str, str]
) -> None:
    before = assistant(SAID, metadata={"genkit": {"snapshotId": "s1"}})
    user_turn = turn(user("one"), before, user("two", message_id="u2"), **more)
    assert agent_input(user_turn).init == {"sessionId": SESSION, **init}


async def test_a_regenerated_first_answer_has_no_snapshot() -> None:
    assert agent_input(turn(user("one"), trigger="regenerate-message")).init == {"sessionId": SESSION}


async def test_an_agent_without_a_store_gets_what_was_said_as_its_state() -> None:
    flow_input = stateless_agent_input(turn(user("one"), assistant(SAID), user("two")))
    assert flow_input.data == {"message": {"role": "user", "content": [{"text": "two"}]}}
    messages = [{"role": "user", "content": [{"text": "one"}]}, {"role": "model", "content": [{"text": "Warm."}]}]
    assert flow_input.init == {"state": {"sessionId": SESSION, "messages": messages}}


@pytest.mark.parametrize(
    ("part", "resume"),
    [
        (ANSWERED, {"respond": [{"toolResponse": {"name": "ask", "output": "blue"}}]}),
        (FAILED, {"respond": [{"toolResponse": {"name": "weather", "output": {"error": "It failed."}}}]}),
        (
            call("r9", "approval-responded", approval={"id": "x", "approved": True}),
            {"restart": [{"toolRequest": {**WEATHER, "ref": "r9"}, "metadata": {"resumed": {"approved": True}}}]},
        ),
        (
            call("r9", "approval-responded", approval={"id": "x", "approved": False, "reason": "no"}),
            {
                "restart": [
                    {
                        "toolRequest": {**WEATHER, "ref": "r9"},
                        "metadata": {"resumed": {"approved": False, "reason": "no"}},
                    }
                ]
            },
        ),
        (
            call("genkit-9", "output-available", output=1, callProviderMetadata={"genkit": {"ref": "0"}}),
            {"respond": [{"toolResponse": {"name": "weather", "ref": "0", "output": 1}}]},
        ),
        (
            {"type": "dynamic-tool", "toolName": "ask", "toolCallId": "r9", "state": "output-available", "output": 1},
            {"respond": [{"toolResponse": {"name": "ask", "ref": "r9", "output": 1}}]},
        ),
    ],
)
async def test_an_agent_goes_on_after_an_answer(part: dict[str, Any], resume: dict[str, Any]) -> None:
    assert agent_input(turn(user("one"), assistant(STEP, DONE, STEP, part))).data == {"resume": resume}


def by_hand(approval: Approval) -> Restart | Respond | None:
    if approval.tool_name == "ask":
        return Respond({"answer": approval.approved, "about": approval.input})
    return Restart(approval.reason) if approval.reason else None


@pytest.mark.parametrize("build", [agent_input, stateless_agent_input, messages_input])
async def test_an_approval_can_be_mapped(build: Any) -> None:
    answers = [
        call("r1", "approval-responded", "ask", approval={"id": "x", "approved": False}),
        call("r2", "approval-responded", approval={"id": "y", "approved": True, "reason": "why not"}),
        call("r3", "approval-responded", approval={"id": "z", "approved": True}),
    ]
    user_turn = turn(user("one"), assistant(STEP, *answers))
    assert build(user_turn, map_approval=by_hand).data["resume"] == {
        "respond": [
            {"toolResponse": {"name": "ask", "ref": "r1", "output": {"answer": False, "about": {"city": "Rome"}}}}
        ],
        "restart": [
            {"toolRequest": {**WEATHER, "ref": "r2"}, "metadata": {"resumed": "why not"}},
            {"toolRequest": {**WEATHER, "ref": "r3"}, "metadata": {"resumed": {"approved": True}}},
        ],
    }


@pytest.mark.parametrize("build", [agent_input, stateless_agent_input, messages_input])
async def test_tools_that_are_named_are_answered_by_a_response_and_others_are_restarted(build: Any) -> None:
    answers = [
        call("r1", "approval-responded", "ask", approval={"id": "x", "approved": False, "reason": "No."}),
        call("r2", "approval-responded", approval={"id": "y", "approved": True}),
    ]
    user_turn = turn(user("one"), assistant(STEP, *answers))
    decided = {"approved": False, "reason": "No."}
    assert build(user_turn, map_approval=respond_to(["ask"])).data["resume"] == {
        "respond": [{"toolResponse": {"name": "ask", "ref": "r1", "output": decided}}],
        "restart": [{"toolRequest": {**WEATHER, "ref": "r2"}, "metadata": {"resumed": {"approved": True}}}],
    }


def test_an_input_that_cannot_resume_takes_no_mapping_of_approvals() -> None:
    with pytest.raises(InvalidSetting, match="map_approval needs an input that resumes interrupted tools"):
        GenkitChatTransport("http://127.0.0.1/flow", build_input=text_input, map_approval=by_hand)


async def test_a_late_ref_is_given_back_with_the_answer() -> None:
    """Go 1.4 and newer store a session under refs that they add when the answer ends."""
    first = call("genkit-1", "output-available", "ask", output="blue", callProviderMetadata={"genkit": {"sign": "s"}})
    second = call("genkit-2", "output-available", "ask", output="red")
    late = {"genkit": {"refs": {"genkit-1": "uuid-1", "genkit-2": "uuid-2", "gone": 4}}}
    user_turn = turn(user("one"), assistant(STEP, first, second, metadata=late))
    answers = [
        {"toolResponse": {"name": "ask", "ref": "uuid-1", "output": "blue"}},
        {"toolResponse": {"name": "ask", "ref": "uuid-2", "output": "red"}},
    ]
    assert agent_input(user_turn).data == {"resume": {"respond": answers}}
    requested = {"name": "ask", "input": {"city": "Rome"}}
    assert messages_input(user_turn).data["messages"][-1]["content"] == [
        {"toolRequest": {**requested, "ref": "uuid-1"}, "metadata": {"sign": "s"}},
        {"toolRequest": {**requested, "ref": "uuid-2"}},
    ]
    assert [tool_request.ref for tool_request in known_calls(user_turn)] == ["uuid-1", "uuid-2"]


@pytest.mark.parametrize("build", [text_input, history_input])
async def test_a_flow_that_cannot_go_on_says_so_instead_of_being_asked_again(build: Any) -> None:
    with pytest.raises(PublicError, match="cannot continue with a tool"):
        build(turn(user("one"), assistant(STEP, ANSWERED)))


@pytest.mark.parametrize("build", [text_input, history_input, mapped_input({"question": "text"})])
async def test_files_that_the_input_cannot_hold_are_refused(build: Any) -> None:
    with pytest.raises(PublicError, match=r"^This agent accepts no files\. Send the message without them\.$"):
        build(turn(user("one", PICTURE)))


async def test_an_input_can_be_mapped_from_the_text_and_the_body() -> None:
    build = mapped_input(
        {"question": "text", "lang": "body.lang", "unit": "body.units.temperature", "gone": "body.gone"}
    )
    user_turn = turn(user("two"), lang="it", units={"temperature": "C"})
    assert build(user_turn) == FlowInput({"question": "two", "lang": "it", "unit": "C"})
    assert build(turn(user("two"), units="C")) == FlowInput({"question": "two"})


@pytest.mark.parametrize("source", ["", "texts", "body", "body.", "header.a"])
def test_a_source_that_a_chat_does_not_have_is_refused(source: str) -> None:
    with pytest.raises(
        InvalidSetting, match=f"^input: 'q' can come from text or from body.FIELD, not from '{source}'$"
    ):
        mapped_input({"q": source})


async def test_a_session_is_the_uuid_of_the_chat_and_each_person_has_their_own() -> None:
    ids = {session_id(turn(user("one"), identity=Identity(subject))) for subject in ("", "ada", "bob")}
    assert len(ids) == 3
    assert SESSION in ids
    assert {uuid.UUID(session).version for session in ids} == {5}


async def test_a_signature_comes_back_with_an_answered_call() -> None:
    metadata = {"genkit": {"thoughtSignature": "s", "interrupt": True, "ref": "0"}}
    part = call("genkit-1", "output-available", output=1, callProviderMetadata=metadata)
    waiting = call("r2", "approval-responded", "delete", approval={"id": "x", "approved": True})
    messages = messages_input(turn(user("one"), assistant(STEP, part, STEP, waiting))).data["messages"]
    request = {"toolRequest": {**WEATHER, "ref": "0"}, "metadata": {"thoughtSignature": "s"}}
    assert messages[1]["content"] == [request]


@pytest.mark.parametrize("forged", [None, 4, "x", {"genkit": None}, {"genkit": {"ref": 4, "refs": 4, "snapshotId": 4}}])
async def test_forged_metadata_does_no_harm(forged: Any) -> None:
    part = call("r1", "output-available", output=1, callProviderMetadata=forged, providerMetadata=forged)
    reasoning = {"type": "reasoning", "text": "Hm", "providerMetadata": forged}
    before = assistant(STEP, reasoning, part, metadata=forged)
    user_turn = turn(user("one"), before, user("two"), trigger="regenerate-message")
    assert agent_input(user_turn).init == {"sessionId": SESSION}
    assert len(messages_input(user_turn).data["messages"]) == 4


async def test_files_of_earlier_messages_are_named_in_the_history() -> None:
    plan = {"type": "file", "mediaType": "application/pdf", "filename": "plan.pdf", "url": "data:application/pdf,x"}
    drawing = {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,AAAA"}
    before = [user("Look", plan), assistant(drawing)]
    assert history_input(turn(*before, user("And now?", message_id="u2"))).data == {
        "message": "And now?",
        "conversationHistory": [
            {"role": "user", "content": "Look\n[file: plan.pdf]"},
            {"role": "model", "content": "[file: image/png]"},
        ],
    }


# Calls of one tool without refs: Genkit finds a call by its name and ref, so all of them would get the first answer


def own(call_id: str, city: str, approved: bool | None = None, **more: Any) -> dict[str, Any]:
    decided = {"state": "approval-responded", "approval": {"id": f"of-{call_id}", "approved": approved}}
    return {"type": "tool-delete", "toolCallId": call_id, "input": {"city": city}, **(more or decided)}


def restart(city: str, approved: bool, **ref: str) -> dict[str, Any]:
    request = {"name": "delete", **ref, "input": {"city": city}}
    return {"toolRequest": request, "metadata": {"resumed": {"approved": approved}}}


@pytest.mark.parametrize("build", [messages_input, stateless_agent_input])
async def test_calls_that_only_their_order_tells_apart_get_refs_of_our_own(build: Any) -> None:
    flow_input = build(
        turn(user("one"), assistant(STEP, own("genkit-1", "Rome", True), own("genkit-2", "Paris", False)))
    )
    assert flow_input.data["resume"]["restart"] == [
        restart("Rome", True, ref="genkit-1"),
        restart("Paris", False, ref="genkit-2"),
    ]
    messages = flow_input.data.get("messages") or flow_input.init["state"]["messages"]
    assert [part["toolRequest"].get("ref") for part in messages[-1]["content"]] == ["genkit-1", "genkit-2"]


async def test_a_call_that_its_name_tells_apart_gets_no_ref() -> None:
    other = call("genkit-2", "output-available", output=4)
    flow_input = messages_input(
        turn(user("one"), assistant(STEP, own("genkit-1", "Rome", True), other), pending_calls=frozenset())
    )
    assert flow_input.data["resume"] == {"restart": [restart("Rome", True)]}


@pytest.mark.parametrize(
    "calls",
    [
        (own("genkit-1", "Rome", True), own("genkit-2", "Rome", False)),
        (own("genkit-1", "Rome", True), own("genkit-2", "Paris", True)),
        (own("genkit-1", "Rome", state="output-available", output="gone"), own("genkit-2", "Paris", True)),
    ],
)
async def test_an_agent_with_a_store_is_not_given_answers_that_it_would_confuse(
    calls: tuple[dict[str, Any], ...], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(
        PublicError, match=r"^This agent cannot tell your answers to one tool apart\. Ask for one thing"
    ):
        agent_input(turn(user("one"), assistant(STEP, *calls), pending_calls=frozenset()))
    assert "several calls of delete have no ref" in caplog.text


async def test_an_agent_with_a_store_is_given_equal_answers() -> None:
    alike = [own("genkit-1", "Rome", True), own("genkit-2", "Rome", True)]
    assert agent_input(turn(user("one"), assistant(STEP, *alike))).data["resume"] == {
        "restart": [restart("Rome", True), restart("Rome", True)]
    }


@pytest.mark.parametrize("output", [None, False, 0, ""])
@pytest.mark.parametrize("build", [agent_input, stateless_agent_input, messages_input])
async def test_a_pending_output_that_javascript_would_ignore_is_a_response_too(build: Any, output: Any) -> None:
    user_turn = turn(
        user("one"),
        assistant(STEP, own("r1", "Rome", True), call("r2", "output-available", output=output)),
        pending_calls=frozenset(),
    )
    assert build(user_turn).data["resume"] == {
        "respond": [{"toolResponse": {"name": "weather", "ref": "r2", "output": output}}],
        "restart": [restart("Rome", True, ref="r1")],
    }


@pytest.mark.parametrize("output", ["cold", {}, [], 1])
async def test_any_other_pending_output_is_known_to_genkit(output: Any) -> None:
    step = [own("r1", "Rome", True), call("r2", "output-available", output=output)]
    user_turn = turn(user("one"), assistant(STEP, *step), pending_calls=frozenset())
    assert agent_input(user_turn).data["resume"] == {"restart": [restart("Rome", True, ref="r1")]}
