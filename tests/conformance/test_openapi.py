"""Schemathesis makes requests from the description of the routes, good and bad ones; a real server answers them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import checks
from schemathesis.generation import GenerationMode

from tests.server.process import PATIENCE, serve_process
from usechat.server.openapi import openapi

SCHEMA = schemathesis.openapi.from_dict(openapi("1"))
CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]
POSITIVE, NEGATIVE = GenerationMode.POSITIVE, GenerationMode.NEGATIVE


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory: Path = tmp_path_factory.mktemp("served")
    (directory / "served_echo.py").write_text("def agent(turn):\n    return turn.text\n", encoding="utf-8")
    with serve_process(directory, "served_echo.py:agent", "--drain", "0.2") as served:
        yield served.url


@pytest.mark.parametrize(
    ("method", "path", "mode"),
    [
        ("post", "/api/chat", POSITIVE),
        ("post", "/api/chat", NEGATIVE),
        ("get", "/api/chat/{id}/stream", POSITIVE),
        ("get", "/api/chat/{id}/stream", NEGATIVE),
        ("post", "/api/chat/{id}/stop", POSITIVE),
        ("get", "/api/chat/{id}", POSITIVE),
        ("get", "/healthz", POSITIVE),
        ("get", "/readyz", POSITIVE),
        ("get", "/metrics", POSITIVE),
    ],
)
def test_no_request_breaks_the_server(method: str, path: str, mode: GenerationMode, url: str) -> None:
    operation: Any = SCHEMA[path][method]
    with requests.Session() as session:

        @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
        @given(operation.as_strategy(generation_mode=mode))
        def ask(case: Any) -> None:
            case.call_and_validate(base_url=url, session=session, timeout=PATIENCE, checks=CHECKS)

        ask()
