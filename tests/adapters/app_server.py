"""An MCP server, over stdio, whose tools bring a user interface, for the model, for the app, or for both."""

import asyncio

from mcp.server.mcpserver import MCPServer

MIME_TYPE = "text/html;profile=mcp-app"
server = MCPServer("weather")


def ui(*visibility: str) -> dict[str, object]:
    return {"ui": {"resourceUri": "ui://weather/map", **({"visibility": list(visibility)} if visibility else {})}}


@server.tool(meta=ui())
def forecast(city: str) -> dict[str, int]:
    """Tell the weather of a city."""
    return {"celsius": len(city)}


@server.tool(meta=ui("app"))
def refresh(city: str) -> dict[str, int]:
    """Tell the weather again, for the app."""
    return {"celsius": len(city) + 1}


@server.tool(meta=ui("model"))
def forget() -> str:
    """Forget all cities."""
    return "forgotten"


@server.tool(meta=ui("app"))
async def wait() -> str:
    """Never answer."""
    await asyncio.Event().wait()
    return ""


@server.tool(meta=ui("app"))
def flood() -> str:
    """Answer with more than a page takes."""
    return "x" * 5_000_000


@server.tool(meta=ui("app"))
def fail() -> str:
    """Fail with what only the server may know."""
    raise RuntimeError("password=hunter2")


@server.resource(
    "ui://weather/map",
    mime_type=MIME_TYPE,
    meta={"ui": {"csp": {"connectDomains": ["https://tiles.example"]}, "prefersBorder": True}, "internal": "db7"},
)
def weather_map() -> str:
    return "<h1>Weather</h1>"


@server.resource("ui://weather/page", mime_type="text/html")
def page() -> str:
    return "<h1>No app</h1>"


@server.resource("ui://weather/huge", mime_type=MIME_TYPE)
def huge() -> str:
    return "x" * 5_000_000


@server.resource("notes://secret", mime_type=MIME_TYPE)
def secret() -> str:
    return "hunter2"


if __name__ == "__main__":
    server.run("stdio")
