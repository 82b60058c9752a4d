"""What an agent asks in calls that wait for the page, and the forms in which the user answers."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page

from examples.mcp.agent import agent as restaurant
from tests.browser.agent import answer
from tests.browser.chatting import ask, expect, hold_the_next, stored, wait_until_idle
from tests.browser.conftest import OpenPage, page_served
from tests.browser.test_sharing import share_of
from tests.browser.test_stored_chats import everyone_is_ada
from tests.conformance.served import Served, eventually
from usechat.chats import MemoryChats


@pytest.fixture(scope="module")
def stored_chats() -> Iterator[str]:
    with page_served(answer, chats=MemoryChats(), authorize=everyone_is_ada, share=True) as served:
        yield f"http://127.0.0.1:{served.port}/chat/"


def click(name: str) -> Callable[[Page], None]:
    return lambda page: page.get_by_role("button", name=name, exact=True).click()


def write(text: str, label: str = "Your answer") -> Callable[[Page], None]:
    return lambda page: page.get_by_label(label, exact=True).fill(text)


def choose(label: str, option: str) -> Callable[[Page], None]:
    return lambda page: void(page.get_by_label(label).select_option(option))


def void(_: object) -> None:
    """Drop a value."""


SEND = click("Answer")


@pytest.mark.parametrize(
    ("kind", "steps", "output"),
    [
        (
            "form",
            [write("3", "Guests"), SEND],
            '{"action": "accept", "content": {"guests": 3, "name": "Ada", "terrace": false}}',
        ),
        (
            "form",
            [
                write("2", "Guests"),
                write("Bo", "Name"),
                write("bo@example.org", "Email (optional)"),
                lambda page: page.get_by_label("Terrace").check(),
                choose("Menu", "Large"),
                write("36", "Age (optional)"),
                lambda page: page.get_by_label("music").check(),
                SEND,
            ],
            '{"action": "accept", "content": {"guests": 2, "name": "Bo", "email": "bo@example.org", '
            '"terrace": true, "menu": "a", "age": 36, "extras": ["music"]}}',
        ),
        ("consent", [SEND], '{"action": "accept", "content": {}}'),
        ("form", [click("Decline")], '{"action": "decline"}'),
        ("visit", [click("Done")], '{"action": "accept"}'),
        ("visit", [click("Decline")], '{"action": "decline"}'),
        ("text", [write("Ada"), SEND], '"Ada"'),
        ("yes-no", [lambda page: page.get_by_label("Yes, go on").check(), SEND], "true"),
        ("yes-no", [SEND], "false"),
        ("seat", [click("4A")], '"4A"'),
        ("seat", [click("By the window")], "7"),
        ("weigh", [write('{"grams": 250}'), SEND], '{"grams": 250}'),
        ("weigh", [write("250 {g}"), SEND], '"250 {g}"'),
    ],
)
def test_the_agent_gets_the_answer(
    open_page: OpenPage, kind: str, steps: list[Callable[[Page], None]], output: str
) -> None:
    page = open_page()
    ask(page, f"question {kind}")
    for step in steps:
        step(page)
    expect(page.get_by_text(f"You answered [{output}]", exact=True)).to_be_visible()
    wait_until_idle(page)
    expect(page.get_by_role("form", name="Answer the question")).to_have_count(0)
    expect(page.get_by_label("Assistant")).to_have_count(1)


def test_a_question_can_be_asked_again_with_the_same_id(open_page: OpenPage) -> None:
    page = open_page()
    for name in ("Ada", "Bo"):
        ask(page, "question text")
        write(name)(page)
        SEND(page)
        expect(page.get_by_text(f'You answered ["{name}"]', exact=True)).to_be_visible()
        wait_until_idle(page)
    outputs = [part["output"] for message in stored(page) for part in message["parts"] if "output" in part]
    assert outputs == ["Ada", "Bo"]


def test_what_was_typed_into_a_form_stays(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "question form")
    write("4", "Guests")(page)
    page.get_by_label("music").check()
    page.get_by_role("button", name="New chat").click()
    ask(page, "question form again")
    expect(page.get_by_label("Guests")).to_have_value("")
    page.get_by_role("button", name="question form", exact=True).click()
    expect(page.get_by_label("Guests")).to_have_value("4")
    page.reload()
    expect(page.get_by_label("Guests")).to_have_value("4")
    expect(page.get_by_label("Name")).to_have_value("Ada")
    expect(page.get_by_label("music")).to_be_checked()


def test_the_browser_refuses_what_does_not_fit_the_form(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "question form")
    for guests, email in [("", ""), ("9", ""), ("2.5", ""), ("2", "nobody")]:
        page.get_by_label("Guests").fill(guests)
        page.get_by_label("email").fill(email)
        SEND(page)
        assert page.locator("form :invalid").count() == 1
    assert [message["role"] for message in stored(page)] == ["user", "assistant"], "nothing was sent"
    expect(page.get_by_role("heading", name="Which table?")).to_be_visible()


def test_an_answer_that_the_agent_refused_is_asked_for_again(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "question again")
    expect(page.get_by_role("form").get_by_role("alert")).to_have_text("Guests must be a whole number.")


def test_a_page_to_visit_is_a_link_only_if_it_is_a_web_address(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "question visit")
    expect(page.get_by_role("link", name="https://example.org/pay")).to_have_attribute("rel", "noreferrer")
    ask(page, "question evil")
    expect(page.get_by_text("Please pay.").last).to_be_visible()
    wait_until_idle(page)
    expect(page.get_by_role("form").get_by_role("link")).to_have_count(0)


@pytest.mark.parametrize("is_stored", [False, True])
def test_an_answer_to_one_of_two_questions_waits_for_the_other(
    open_page: OpenPage, stored_chats: str, is_stored: bool
) -> None:
    page = open_page(stored_chats if is_stored else "")
    ask(page, "question two")
    forms = page.get_by_role("form", name="Answer the question")
    expect(forms).to_have_count(2)
    forms.last.get_by_label("Your answer").fill("second")
    forms.last.get_by_label("Your answer").press("Enter")
    expect(forms).to_have_count(1)
    wait_until_idle(page)  # the answer is kept
    page.reload()
    expect(forms).to_have_count(1)
    expect(forms).to_contain_text("The first?")
    page.get_by_label("Your answer").fill("first")
    page.get_by_label("Your answer").press("Enter")
    expect(page.get_by_text('You answered ["first", "second"]')).to_be_visible()
    wait_until_idle(page)
    expect(page.get_by_label("Assistant")).to_have_count(1)


ANSWERS_AT_ONCE = """() => {
    const request = window.fetch;
    let load = () => {};
    const mayLoad = new Promise((resolve) => (load = resolve));
    window.fetch = async (...all) => {
        const response = await request(...all);
        if (String(all[0]).endsWith("/messages")) await mayLoad;
        return response;
    };
    new MutationObserver((_, observer) => {
        const forms = [...document.querySelectorAll("form[aria-label='Answer the question']")];
        if (forms.length < 2) return;
        observer.disconnect();
        forms[1].querySelector("[name]").value = "second";
        forms[1].requestSubmit();
        load();
    }).observe(document, { childList: true, subtree: true });
}"""


def test_an_answer_that_is_given_as_the_chat_is_loaded_stays(open_page: OpenPage, stored_chats: str) -> None:
    page = open_page(stored_chats)
    page.evaluate(ANSWERS_AT_ONCE)
    ask(page, "question two")
    forms = page.get_by_role("form", name="Answer the question")
    expect(forms).to_have_count(1)
    wait_until_idle(page)
    expect(forms).to_have_count(1)
    page.get_by_label("Your answer").fill("first")
    page.get_by_label("Your answer").press("Enter")
    expect(page.get_by_text('You answered ["first", "second"]')).to_be_visible()


def test_the_last_answer_is_sent_while_the_chat_is_loaded(open_page: OpenPage, stored_chats: str) -> None:
    page = open_page(stored_chats)
    ask(page, "question two")
    forms = page.get_by_role("form", name="Answer the question")
    expect(forms).to_have_count(2)
    wait_until_idle(page)
    routes = hold_the_next(page, "**/messages")
    page.reload()
    expect(forms).to_have_count(2)
    for answer_to_one in ("first", "second"):
        forms.first.get_by_label("Your answer").fill(answer_to_one)
        forms.first.get_by_label("Your answer").press("Enter")
    eventually(lambda: len(routes) == 1, "the chat is being loaded")
    expect(page.get_by_text('You answered ["first", "second"]')).to_be_visible()
    routes[0].fallback()
    wait_until_idle(page)
    expect(page.get_by_role("alert")).to_be_hidden()
    expect(page.get_by_text('You answered ["first", "second"]')).to_be_visible()


def test_a_message_instead_of_an_answer_ends_the_question(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "question two")
    page.get_by_label("Your answer").first.fill("first")
    page.get_by_label("Your answer").first.press("Enter")
    ask(page, "tools please")
    wait_until_idle(page)
    expect(page.get_by_role("form", name="Answer the question")).to_have_count(0)
    expect(page.get_by_role("button", name="question Not answered")).to_be_visible()
    assert [message["role"] for message in stored(page)] == ["user", "assistant"] * 2, "nothing was sent by itself"


def test_a_tool_of_a_stopped_answer_asks_nothing(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "tools held")
    expect(page.locator("[data-state-of-tool=input-available]")).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    wait_until_idle(page)
    for _ in range(2):
        expect(page.get_by_role("button", name="search Failed")).to_be_visible()
        expect(page.get_by_role("form", name="Answer the question")).to_have_count(0)
        page.reload()


def test_a_shared_chat_shows_the_question_without_its_form(open_page: OpenPage, stored_chats: str) -> None:
    page = open_page(stored_chats)
    ask(page, "question text")
    expect(page.get_by_role("form", name="Answer the question")).to_be_visible()
    wait_until_idle(page)
    share_of(page, "question text")
    page.get_by_role("menuitem", name="Share").click()
    page.get_by_role("button", name="Create a link").click()
    page.goto(page.get_by_label("Link", exact=True).input_value())
    expect(page.get_by_role("button", name="question Not answered What is your name?")).to_be_visible()
    expect(page.get_by_role("form", name="Answer the question")).to_have_count(0)


def test_an_mcp_server_asks_while_its_tool_runs(open_page: OpenPage) -> None:
    with page_served(restaurant, chats=MemoryChats(), authorize=everyone_is_ada) as served:
        page = open_page(f"http://127.0.0.1:{served.port}/chat/")
        ask(page, "Friday")
        expect(page.get_by_role("button", name="book Running")).to_be_visible()
        page.get_by_label("Guests").fill("3")
        page.get_by_label("Terrace").check()
        SEND(page)
        expect(page.get_by_text("3 people on Friday, on the terrace.")).to_be_visible()
        wait_until_idle(page)
        expect(page.get_by_role("button", name="book Done")).to_be_visible()
        expect(page.get_by_role("button", name="question Done Which table on Friday?")).to_be_visible()


@pytest.mark.parametrize("is_stored", [False, True])
def test_an_answer_that_was_given_offline_is_sent_when_the_server_is_back(
    open_page: OpenPage, stored_chats: str, is_stored: bool
) -> None:
    page = open_page(stored_chats if is_stored else "")
    ask(page, "question text")
    wait_until_idle(page)
    page.context.set_offline(True)
    page.get_by_label("Your answer").fill("Ada")
    SEND(page)
    expect(page.get_by_text("The connection was lost. Reconnecting…")).to_be_visible()
    page.context.set_offline(False)
    if not is_stored:  # the server cannot say whether it has got the answer: a person decides
        expect(page.get_by_role("alert")).to_contain_text("The connection was lost before the answer was complete.")
        expect(page.get_by_role("button", name="question Done What is your name?")).to_be_visible()
        page.get_by_role("button", name="Try again").click()
    expect(page.get_by_text('You answered ["Ada"]')).to_be_visible()
    wait_until_idle(page)
    expect(page.get_by_label("Assistant")).to_have_count(1)


def test_an_answer_that_was_given_offline_is_there_after_a_reload(open_page: OpenPage, stored_chats: str) -> None:
    page = open_page(stored_chats)
    ask(page, "question text")
    wait_until_idle(page)
    page.route("**/api/chat", lambda route: route.abort())
    page.get_by_label("Your answer").fill("Ada")
    SEND(page)
    expect(page.get_by_role("button", name="question Done What is your name?")).to_be_visible()
    page.reload()
    page.unroute("**/api/chat")
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_text('You answered ["Ada"]')).to_be_visible()


def test_a_form_is_filled_in_with_keys_alone(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "question form")
    expect(page.get_by_role("form", name="Answer the question")).to_be_visible()
    wait_until_idle(page)
    while not page.get_by_label("Guests").evaluate("input => input === document.activeElement"):
        page.keyboard.press("Shift+Tab")
    for keys in ("2", "Tab", "Tab", "Tab", "Space", "Tab", "l", "Tab", "Tab", "Tab", "Space", "Enter"):
        page.keyboard.press(keys)
    content = '{"guests": 2, "name": "Ada", "terrace": true, "menu": "a", "extras": ["music"]}'
    expect(page.get_by_text(f'You answered [{{"action": "accept", "content": {content}}}]')).to_be_visible()
    expect(page.locator("#prompt")).to_be_focused()


def test_a_form_is_filled_in_with_a_finger(chromium: Browser, served: Served) -> None:
    context = chromium.new_context(viewport={"width": 390, "height": 780}, has_touch=True, is_mobile=True)
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{served.port}/chat/")
    ask(page, "question form")
    controls = page.get_by_role("form").locator("input:visible, select, button")
    wait_until_idle(page)
    page.get_by_label("Guests").tap()
    page.keyboard.type("2")
    page.get_by_text("Terrace").tap()
    page.get_by_text("flowers").tap()
    assert [box for box in controls.all() if height_to_tap(box) < 40] == []
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.get_by_role("button", name="Answer", exact=True).tap()
    content = '{"guests": 2, "name": "Ada", "terrace": true, "extras": ["flowers"]}'
    expect(page.get_by_text(f'You answered [{{"action": "accept", "content": {content}}}]')).to_be_visible()
    context.close()


def height_to_tap(control: Locator) -> float:
    """Return the height of a control, or of the label around it."""
    height: float = control.evaluate("box => (box.closest('label') ?? box).getBoundingClientRect().height")
    return height
