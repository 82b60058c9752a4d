"""What a graph with a checkpointer is sent: the new message, and what has to be mended or removed before it."""

from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage, ToolMessage

from tests.adapters.turns import assistant, text, tool, turn_of, user
from usechat.adapters import conversation
from usechat.adapters.langgraph import next_messages
from usechat.protocol.request import ChatRequest
from usechat.turn import TurnContext, TurnInput

CALL: Any = {"name": "dig", "args": {}, "id": "c1", "type": "tool_call"}


def human(content: str, message_id: str) -> HumanMessage:
    return HumanMessage(content, id=message_id, additional_kwargs={"usechat": True})


def short(messages: list[BaseMessage]) -> list[tuple[str, Any]]:
    return [(message.type, message.content) for message in messages]


ONE_TURN = [human("One?", "u1"), AIMessage("One.", id="a1")]
TWO_TURNS = [*ONE_TURN, human("Two?", "u2"), AIMessage("Two.", id="a2")]
ANSWERS = assistant(text("One."), message_id="m1"), assistant(text("Two."), message_id="m2")


async def test_a_new_message_is_sent_alone_under_its_id() -> None:
    messages = next_messages(ONE_TURN, turn_of(user("One?"), ANSWERS[0], user("Two?", "u2")))
    assert short(messages) == [("human", "Two?")]
    assert messages[0].id == "u2"


async def test_a_page_that_sends_only_the_last_message_keeps_the_thread() -> None:
    assert short(next_messages(TWO_TURNS, turn_of(user("Three?", "u3")))) == [("human", "Three?")]


async def test_an_empty_thread_gets_the_whole_chat() -> None:
    messages = next_messages([], turn_of(user("One?"), ANSWERS[0], user("Two?", "u2")))
    assert short(messages) == [("human", "One?"), ("ai", "One."), ("human", "Two?")]


async def test_the_questions_of_an_empty_thread_keep_their_ids() -> None:
    messages = next_messages([], turn_of(user("One?"), ANSWERS[0], user("Two?", "u2")))
    assert [message.id for message in messages if isinstance(message, HumanMessage)] == ["u1", "u2"]


async def test_what_is_regenerated_is_removed() -> None:
    messages = next_messages(TWO_TURNS, turn_of(user("One?"), ANSWERS[0], user("Two?", "u2")))
    assert isinstance(messages[0], RemoveMessage)
    assert short(messages[1:]) == [("human", "One?"), ("ai", "One."), ("human", "Two?")]


async def test_what_was_edited_under_a_new_id_is_removed() -> None:
    messages = next_messages(TWO_TURNS, turn_of(user("One?"), ANSWERS[0], user("Other?", "u9")))
    assert isinstance(messages[0], RemoveMessage)
    assert short(messages[1:]) == [("human", "One?"), ("ai", "One."), ("human", "Other?")]


async def test_messages_that_middleware_added_are_kept() -> None:
    state = [*ONE_TURN, HumanMessage("A summary.", id="x")]
    assert short(next_messages(state, turn_of(user("One?"), ANSWERS[0], user("Two?", "u2")))) == [("human", "Two?")]


async def test_a_call_that_was_stopped_is_closed_before_the_next_message() -> None:
    state = [human("Dig.", "u1"), AIMessage("", tool_calls=[CALL], id="a1")]
    stopped = assistant(tool("dig", "c1", "input-available"), message_id="m1")
    messages = next_messages(state, turn_of(user("Dig."), stopped, user("Hi.", "u2")))
    assert short(messages) == [("tool", conversation.NOT_COMPLETED), ("human", "Hi.")]
    assert isinstance(messages[0], ToolMessage)
    assert (messages[0].tool_call_id, messages[0].status) == ("c1", "error")


async def test_results_that_the_thread_does_not_keep_are_sent_again() -> None:
    calls: Any = [CALL, {**CALL, "id": "c2"}]
    state = [human("Dig.", "u1"), AIMessage("", tool_calls=calls, id="a1"), ToolMessage("Gold.", tool_call_id="c1")]
    messages = next_messages(state, turn_of(user("Hi.", "u2")), is_saved=False)
    assert isinstance(messages[0], RemoveMessage)
    assert short(messages[3:]) == [("tool", "Gold."), ("tool", conversation.NOT_COMPLETED), ("human", "Hi.")]


async def test_a_regenerated_answer_to_no_question_keeps_the_thread() -> None:
    request = ChatRequest(chat_id="c1", messages=[ANSWERS[0]], trigger="regenerate-message")
    assert next_messages(ONE_TURN, TurnContext(TurnInput(request)).turn) == []


async def test_a_call_that_was_left_open_long_ago_is_closed_in_its_place() -> None:
    state = [human("Dig.", "u1"), AIMessage("", tool_calls=[CALL], id="a1"), human("Hi.", "u2")]
    messages = next_messages(state, turn_of(user("Three?", "u3")))
    assert isinstance(messages[0], RemoveMessage)
    assert [kind for kind, _ in short(messages[1:])] == ["human", "ai", "tool", "human", "human"]


async def test_the_output_of_the_page_closes_its_call() -> None:
    state = [human("Where?", "u1"), AIMessage("", tool_calls=[CALL], id="a1")]
    answer = assistant(tool("dig", "c1", "output-available", output={"city": "Paris"}), message_id="m1")
    assert short(next_messages(state, turn_of(user("Where?"), answer))) == [("tool", '{"city":"Paris"}')]


# The server has stored the whole chat.


def stored(*messages: Any) -> Any:
    return turn_of(*messages, has_whole_history=True)


async def test_a_thread_in_step_with_the_stored_chat_gets_the_new_message_alone() -> None:
    turn = stored(user("One?"), ANSWERS[0], user("Two?", "u2"), ANSWERS[1], user("Three?", "u3"))
    assert short(next_messages(TWO_TURNS, turn)) == [("human", "Three?")]


async def test_an_edited_first_message_of_a_stored_chat_removes_what_followed() -> None:
    messages = next_messages(TWO_TURNS, stored(user("Other?", "u9")))
    assert isinstance(messages[0], RemoveMessage)
    assert short(messages[1:]) == [("human", "Other?")]


async def test_an_older_version_of_an_answer_replaces_the_one_that_the_thread_has() -> None:
    older = assistant(text("Uno."), message_id="m0")
    messages = next_messages(TWO_TURNS, stored(user("One?"), older, user("Three?", "u3")))
    assert isinstance(messages[0], RemoveMessage)
    assert short(messages[1:]) == [("human", "One?"), ("ai", "Uno."), ("human", "Three?")]


async def test_a_longer_version_of_an_answer_replaces_the_one_that_the_thread_has() -> None:
    longer = assistant(text("One. And more."), message_id="m0")
    messages = next_messages(TWO_TURNS, stored(user("One?"), longer, user("Three?", "u3")))
    assert short(messages[1:]) == [("human", "One?"), ("ai", "One. And more."), ("human", "Three?")]


async def test_a_branch_that_the_thread_has_left_comes_back() -> None:
    turn = stored(user("One?"), ANSWERS[0], user("Zwei?", "u5"), assistant(text("Zwei.")), user("Three?", "u3"))
    messages = next_messages(TWO_TURNS, turn)
    assert short(messages[1:])[2:] == [("human", "Zwei?"), ("ai", "Zwei."), ("human", "Three?")]
    assert short(next_messages(messages[1:], stored(*turn.messages, ANSWERS[1], user("Four?", "u4"))))[-1] == (
        "human",
        "Four?",
    )


async def test_an_answer_that_was_stopped_stays_as_the_thread_has_it() -> None:
    state = [*ONE_TURN, human("Two?", "u2")]
    turn = stored(user("One?"), ANSWERS[0], user("Two?", "u2"), assistant(text("Tw")), user("Three?", "u3"))
    assert short(next_messages(state, turn)) == [("human", "Three?")]


async def test_an_answer_that_a_crash_cut_goes_on_in_the_thread_of_the_one_before() -> None:
    half = assistant(text("Tw"), tool("dig", "c1", "output-error", errorText="Unknown."), message_id="m2")
    turn = stored(user("One?"), ANSWERS[0], user("Two?", "u2"), half)
    messages = next_messages(ONE_TURN, turn, is_behind=True)
    assert [message.type for message in messages] == ["human", "ai", "tool"]
    assert [message.id for message in messages[:1]] == ["u2"]


async def test_a_beginning_that_middleware_has_shortened_stays_so() -> None:
    state = [HumanMessage("A summary.", id="x"), *TWO_TURNS[2:]]
    turn = stored(user("One?"), ANSWERS[0], user("Two?", "u2"), ANSWERS[1], user("Three?", "u3"))
    assert short(next_messages(state, turn)) == [("human", "Three?")]
    everything = [HumanMessage("A summary.", id="x"), AIMessage("I see.")]
    assert short(next_messages(everything, turn)) == [("human", "Three?")]
