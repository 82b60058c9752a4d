"""Which chat a path names. Pages choose the ids of chats, so they may be any text."""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from starlette.convertors import Convertor, register_url_convertor

from usechat.requests import LONGEST_ID
from usechat.runs.keeper import NotTheirs

__all__ = ["CHAT_ID", "chat_key"]

CHAT_ID: Final = "{chat_id:usechat_id}"
"""The chat in the path of a route. It takes slashes: pages before 5.0.270, 6.0.297 and 7.0.122 send them as they are,
and servers decode those of later pages (``encodeURIComponent``) before the app sees them."""


class _ChatIdConvertor(Convertor[str]):
    regex = r"[\s\S]+"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("usechat_id", _ChatIdConvertor())


def chat_key(path_params: Mapping[str, Any], chat_id: str) -> str:
    """Return the name of a chat among the runs: its id, behind what else the path names; no two chats share one.

    It is part of log lines and of the names of Redis keys, so whatever is not plain is escaped as in a URL. A path that
    names anything too long to be an id is NotTheirs: names are remembered for a while, and servers take long paths.
    """
    others = {name: str(value) for name, value in path_params.items() if name != "chat_id"}
    if any(len(text) > LONGEST_ID for text in (chat_id, *others.values())):
        raise NotTheirs("No such chat.")
    return "".join([*(f"{name}={_escape(value)}/" for name, value in others.items()), _escape(chat_id)])


def _escape(text: str) -> str:
    return quote(text, safe="", errors="surrogatepass")
