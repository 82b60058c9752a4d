"""Test an agent in five lines: an app, a URL or the agent itself.

.. code-block:: python

    def test_agent_is_legal(usechat_client):                  # any ASGI app, WSGI app, URL or agent object
        answer = usechat_client(app).ask("weather in Paris")
        answer.assert_legal(sdk="any")                        # fails with the rule's name, the frame and the remedy
        assert answer.tools[0].output == {"celsius": 21}
        assert answer.text.startswith("It is")

The fixture is there as soon as usechat is installed. Without pytest, use :class:`AgentClient` as a context manager.
:class:`ScriptedModel` is a model for the agent: a server that follows a script and rejects what the real APIs reject.
:func:`check_adapter` checks the adapter of a framework.
"""

from usechat.testing.adapters import check_adapter
from usechat.testing.client import AgentClient, Exchange, TestedAnswer
from usechat.testing.models import ModelAnswer, ModelCall, ScriptedModel

__all__ = ["AgentClient", "Exchange", "ModelAnswer", "ModelCall", "ScriptedModel", "TestedAnswer", "check_adapter"]
