"""The agent of the scripts behind AG-UI: Pydantic AI's own AG-UI server, in this process and at an address."""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

from pydantic_ai import DeferredToolRequests
from pydantic_ai.ui.ag_ui import AGUIAdapter
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.adapters import pydantic_ai_agent
from tests.adapters.agents import Api, Deeds
from tests.conformance.served import serving
from usechat.adapters.ag_ui import AgUiEndpoint, AgUiSource
from usechat.testing import ScriptedModel


def in_process(model: ScriptedModel, api: Api, deeds: Deeds) -> Any:
    agent = pydantic_ai_agent.make(model, api, deeds, handler=None)

    def run(run_input: Any) -> AsyncIterator[Any]:
        adapter = AGUIAdapter(agent=agent, run_input=run_input, include_usage=True)
        return adapter.run_stream(output_type=[str, DeferredToolRequests])

    return AgUiSource(run)


@contextmanager
def at_an_address(model: ScriptedModel, api: Api, deeds: Deeds) -> Iterator[Any]:
    agent = pydantic_ai_agent.make(model, api, deeds, handler=None)

    async def answer(request: Request) -> Response:
        output_type = [str, DeferredToolRequests]
        return await AGUIAdapter.dispatch_request(request, agent=agent, include_usage=True, output_type=output_type)

    app: Any = Starlette(routes=[Route("/api/chat", answer, methods=["POST"])])
    with serving({"remote": app}) as served:
        yield AgUiEndpoint(served.url("remote"))
