"""The description of the routes names all of them, and nothing else."""

import functools

from starlette.routing import Route

from usechat.chats import MemoryChats
from usechat.server import ChatApp, LocalPagesOnly
from usechat.server.openapi import openapi


def test_every_route_is_described() -> None:
    app = ChatApp(lambda turn: turn.text, path="/chat", chats=MemoryChats(), authorize=LocalPagesOnly(), share=True)
    names = {"{chat_id}": "{id}", "{message_id}": "{messageId}", "{blob_id}": "{fileId}"}
    routes = {
        (functools.reduce(lambda path, name: path.replace(name, names[name]), names, route.path_format), method.lower())
        for route in app.routes
        if isinstance(route, Route) and not route.path.endswith("/")  # the same with a slash
        for method in (route.methods or set()) - {"HEAD"}
    }
    paths = openapi("1", "/chat")["paths"]
    assert {(path, method) for path, item in paths.items() for method in item if method != "parameters"} == routes
