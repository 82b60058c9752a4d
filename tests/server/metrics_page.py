"""Asking an app without a socket, and reading its /metrics."""

from typing import Any

import httpx2


def chat_request(text: str, chat_id: str = "c1") -> dict[str, Any]:
    return {"id": chat_id, "messages": [{"id": "u1", "role": "user", "parts": [{"type": "text", "text": text}]}]}


async def ask(app: Any, method: str, path: str, *, text: str | None = None, accept: str = "*/*") -> httpx2.Response:
    """Send a request, with a user's message if there is a text; return the whole response."""
    body = None if text is None else chat_request(text)
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://test") as client:
        return await client.request(method, path, json=body, headers={"accept": accept})


def parse_samples(page: str) -> dict[str, float]:
    """Return the samples of a page in Prometheus' text format, by their name with labels; not when they began."""
    lines = (line.rpartition(" ") for line in page.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in lines if not name.partition("{")[0].endswith("_created")}


async def read_samples(app: Any) -> dict[str, float]:
    response = await ask(app, "GET", "/metrics")
    assert response.status_code == 200
    return parse_samples(response.text)
