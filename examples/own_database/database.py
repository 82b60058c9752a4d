"""The database of the application: one row per message. From usechat it uses only the arguments of the hooks."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy import JSON, delete, select
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from usechat import Turn

engine = create_async_engine(os.environ.get("DATABASE", "sqlite+aiosqlite:///messages.db"))
sessions = async_sessionmaker(engine)


class Base(DeclarativeBase):
    """The tables of the application."""


class Message(Base):
    """A message of a chat; ``position`` is its index in the chat."""

    __tablename__ = "messages"

    owner: Mapped[str] = mapped_column(primary_key=True)
    chat: Mapped[str] = mapped_column(primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    body: Mapped[dict[str, Any]] = mapped_column(JSON)
    outcome: Mapped[str]


@asynccontextmanager
async def lifespan(_app: object) -> AsyncIterator[None]:
    """Create the tables when the application starts, and close the connections when it ends."""
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    yield
    await engine.dispose()


def owner_of(turn: Turn) -> str:
    """Return the owner of a chat."""
    return turn.identity.subject if turn.identity else ""


async def load(turn: Turn) -> list[Any]:
    """Return the messages of a chat."""
    query = select(Message.body).where(Message.owner == owner_of(turn), Message.chat == turn.chat_id)
    async with sessions() as session:
        return list(await session.scalars(query.order_by(Message.position)))


async def save(message: Any, turn: Turn, outcome: str) -> None:
    """Store the messages of the turn and the answer. The answer replaces the message that it continues.

    The messages of a turn whose worker was lost are not known: what is stored stays.
    """
    owner = owner_of(turn)
    earlier = await load(turn) if outcome == "lost" else turn.messages
    messages = [*(each for each in earlier if each["id"] != message["id"]), message]
    async with sessions.begin() as session:
        await session.execute(delete(Message).where(Message.owner == owner, Message.chat == turn.chat_id))
        session.add_all(
            Message(owner=owner, chat=turn.chat_id, position=position, body=dict(body), outcome=outcome)
            for position, body in enumerate(messages)
        )
