"""Starlette: ``uvicorn examples.own_database.starlette_app:app``; with resume and stop."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.routing import Mount

from examples.own_database import database
from examples.own_database.agent import agent
from usechat.server import ChatApp

chats = ChatApp(agent, load=database.load, on_finish=database.save, metrics=False)


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    """Open and close the database around the chats."""
    async with database.lifespan(app):
        yield
        await chats.shut_down()  # frameworks send no lifespan events to mounted apps


app = Starlette(routes=[Mount("/", chats)], lifespan=lifespan)
