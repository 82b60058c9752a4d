"""The guides are run: each of their agents answers with a legal stream, and says what the guide says."""

import re
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import django
import pytest
from django.conf import settings
from django.contrib.auth import login
from django.contrib.sessions.backends.signed_cookies import SessionStore
from django.core.management import call_command
from django.http import HttpRequest

from scripts.generate_docs import ROOT
from usechat.errors import RequestRefused
from usechat.protocol.ui_messages import FileUIPart
from usechat.testing import AgentClient

pytestmark = pytest.mark.once

PYTHON = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
LOCATION = {"tools": {"location": {"city": "Paris"}}}
ATTACHED: FileUIPart = {
    "type": "file",
    "mediaType": "text/plain",
    "filename": "a.txt",
    "url": "data:text/plain;base64,aGVsbG8=",
}

pytestmark = pytest.mark.usefixtures("logging_as_before")  # Litestar configures logging


def names_of(page: str) -> dict[str, Any]:
    """Run the Python blocks of a guide as one module, and return the names that it defines."""
    module = sys.modules[f"guide_{page}"] = ModuleType(f"guide_{page}")
    for block in PYTHON.findall((ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")):
        exec(compile(block, f"docs/{page}.md", "exec", dont_inherit=True), module.__dict__)
    return module.__dict__


@pytest.mark.parametrize(
    ("page", "agent", "options", "text"),
    [
        ("parts", "agent", {}, "It is 21 °C in Paris."),
        ("parts", "panel", {}, "I plan. The plan is ready.I write code. "),
        ("parts", "metered", {}, "Done."),
        ("parts", "plain_agent", {}, "ready"),
        ("tools", "agent", {}, "It is 21 °C."),
        ("tools", "counting", {}, ""),
        ("tools", "located", LOCATION, "You are in Paris."),
        ("tools", "careful", {"approve": True}, "The file is gone."),
        ("tools", "careful", {"approve": False}, "The file is still there."),
        ("files", "painter", {}, "Here is a circle."),
        ("values", "agent", {}, ""),
        ("data", "agent", {}, "It is warm."),
        ("data", "working", {}, "Done."),
        ("data", "hinting", {}, "Found it."),
        ("migrate", "agent", {}, "Hello."),
        ("resume", "app", {}, "You said: hi"),
        ("survive", "agent", {}, "Done: paid for hi"),
        ("resume", "patient", {}, "".join(f"{number} " for number in range(1000))),
        ("errors", "app", {}, "All right."),
        ("errors", "looking", {}, "I do not know that city."),
        ("deploy", "agent", {}, "You said: hi"),
        ("deploy", "harmless", {}, "Asking twice does no harm."),
        ("metrics", "app", {}, "You said: hi"),
    ],
)
def test_an_agent_of_a_guide_answers(page: str, agent: str, options: Mapping[str, Any], text: str) -> None:
    with AgentClient(names_of(page)[agent], **options) as client:
        answer = client.ask("hi")
        assert answer.text == text
        answer.assert_legal("6" if "approve" in options else "any")


def test_the_page_gets_the_parts_that_the_guides_name() -> None:
    with AgentClient(names_of("data")["agent"]) as client:
        assert client.ask("hi").data == {"weather": [{"city": "Paris", "celsius": 21}]}
    with AgentClient(names_of("data")["working"]) as client:
        assert client.ask("hi").data == {"progress": [{"percent": 100}]}
    with AgentClient(names_of("tools")["counting"]) as client:
        assert client.ask("hi").tools[0].output == {"percent": 100}
    with AgentClient(names_of("values")["agent"]) as client:
        assert client.ask("hi").tools[0].output == {"born": "1815-12-10"}
    with AgentClient(names_of("files")["painter"]) as client:
        assert [file["mediaType"] for file in client.ask("hi").files] == ["image/svg+xml"]


def test_an_agent_reads_what_the_user_attached() -> None:
    with AgentClient(names_of("files")["agent"]) as client:
        assert client.ask("What is it?", files=[ATTACHED]).text == "a.txt is text/plain. It has 5 bytes."


def test_the_page_shows_the_texts_that_the_guide_to_errors_gives_it() -> None:
    names = names_of("errors")
    with AgentClient(names["app"]) as client:
        assert str(client.ask("x" * 1001).error) == "That is too long for me."
    assert [names["explain"](error) for error in (TimeoutError(), ValueError())] == [
        "The model is busy. Try again in a minute.",
        "Please call us.",
    ]


def test_a_route_that_was_migrated_answers() -> None:
    with AgentClient(names_of("migrate")["app"]) as client:
        assert client.ask("hi").text == "Hello."


APPS = ("one_route", "all_routes", "litestar_app", "application", "quart_app", "flask_app")


@pytest.fixture
def apps(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Run the guide to web apps; Django is configured once per process, with a database of its users."""
    directory = tmp_path_factory.mktemp("django")
    if not settings.configured:
        settings.configure(
            ALLOWED_HOSTS=["*"],
            DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(directory / "django.db")}},
            INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions"],
            SECRET_KEY="a key for this test",
            SESSION_ENGINE="django.contrib.sessions.backends.signed_cookies",
        )
        django.setup()
        call_command("migrate", verbosity=0)
    return names_of("apps")


def new_user(name: str) -> Any:
    from django.contrib.auth.models import User  # Django must be configured first

    return User.objects.create_user(name, password="secret")


def cookie_of(user: Any) -> str:
    """Return the cookie of a person who signs in to Django."""
    request = HttpRequest()
    request.session = SessionStore()
    login(request, user, "django.contrib.auth.backends.ModelBackend")
    request.session.save()
    return f"{settings.SESSION_COOKIE_NAME}={request.session.session_key}"


def change_password(user: Any) -> None:
    user.set_password("another secret")
    user.save()


def deactivate(user: Any) -> None:
    user.is_active = False
    user.save()


@pytest.mark.parametrize("name", APPS)
def test_an_agent_answers_in_every_web_framework(name: str, apps: dict[str, Any]) -> None:
    headers = {}
    if name == "application":
        headers = {"sec-fetch-site": "same-origin", "cookie": cookie_of(new_user("ada"))}
    with AgentClient(apps[name], headers=headers) as client:
        answer = client.ask("hi")
        assert answer.text == "You said: hi"
        answer.assert_legal()


@pytest.mark.parametrize(
    ("headers", "sentence"),
    [
        ({"sec-fetch-site": "same-origin"}, "Please sign in."),
        ({"sec-fetch-site": "cross-site"}, "Please ask from our own page."),
    ],
)
def test_django_knows_who_asks(headers: dict[str, str], sentence: str, apps: dict[str, Any]) -> None:
    with AgentClient(apps["application"], headers=headers) as client:
        error = client.ask("hi").error
    assert isinstance(error, RequestRefused)
    assert (error.status, error.body) == (401, sentence)


@pytest.mark.parametrize("revoke", [deactivate, change_password, lambda user: user.delete()])
def test_django_refuses_a_user_whose_access_was_revoked(revoke: Callable[[Any], object], apps: dict[str, Any]) -> None:
    user = new_user(f"revoked by {revoke.__name__}")
    headers = {"sec-fetch-site": "same-origin", "cookie": cookie_of(user)}
    with AgentClient(apps["application"], headers=headers) as client:
        assert client.ask("hi").text == "You said: hi"
        revoke(user)
        error = client.ask("hi").error
    assert isinstance(error, RequestRefused)
    assert (error.status, error.body) == (401, "Please sign in.")


def test_a_framework_of_asgi_keeps_its_own_paths(apps: dict[str, Any]) -> None:
    app = apps["with_chats"](apps["quart_pages"])
    with AgentClient(app) as client:
        assert client.ask("hi").text == "You said: hi"
