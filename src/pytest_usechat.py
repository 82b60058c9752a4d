"""The pytest plugin of usechat. It imports nothing until a fixture is used."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from usechat.testing import AgentClient, ScriptedModel


@pytest.fixture
def usechat_client() -> Iterator[Callable[..., "AgentClient"]]:
    """Make clients for any ASGI app, WSGI app, URL or agent: ``usechat_client(app).ask("hi")``.

    It takes what ``usechat.testing.AgentClient`` takes; the clients are closed after the test.
    """
    from contextlib import ExitStack

    from usechat.testing import AgentClient

    with ExitStack() as opened:
        yield lambda target, **options: opened.enter_context(AgentClient(target, **options))


@pytest.fixture
def scripted_model() -> Iterator[Callable[..., "ScriptedModel"]]:
    """Start model servers that follow a script: ``scripted_model(["Hello"]).openai_url``.

    It takes what ``usechat.testing.ScriptedModel`` takes; the servers are stopped after the test.
    """
    from contextlib import ExitStack

    from usechat.testing import ScriptedModel

    with ExitStack() as opened:
        yield lambda answers: opened.enter_context(ScriptedModel(answers))
