"""Runs on the network: ASGI endpoints that a stock AI SDK front end talks to.

``chat_response`` answers one request in a route of your own; ``ChatApp`` has all routes. Everything that
documentation and examples need is importable from here.
"""

from typing import TYPE_CHECKING, Final

from usechat.lazy import lazy_names
from usechat.protocol.request import Limits
from usechat.runs.memory import MemoryRuns
from usechat.runs.quotas import QuotaLimiter, Quotas
from usechat.runs.run import RunInfo, RunState
from usechat.runs.settings import Settings, Timeouts, cancel_after
from usechat.runs.store import RunStore
from usechat.server.app import ChatApp, PolicyApp
from usechat.server.auth.bearer import TokenRule, bearer, token_of
from usechat.server.auth.origin import LocalPagesOnly
from usechat.server.auth.tokens import ApiTokens, WatchedFile, new_api_token
from usechat.server.cors import with_cors
from usechat.server.endpoints import chat_response
from usechat.server.hooks import Feedback
from usechat.server.listening import listen
from usechat.server.observers.logs import JsonFormatter
from usechat.server.observers.observer import AppRequest, Observer, Observers
from usechat.server.observers.workers import counted_together
from usechat.server.openapi import openapi
from usechat.server.requests import AccessPolicy, Action, Authorize, AuthorizedChats, allow_all, is_welcome
from usechat.server.worker import AgentWorker
from usechat.sources import restartable
from usechat.turn import Identity

if TYPE_CHECKING:
    from usechat.runs.redis.store import RedisRuns
    from usechat.runs.redis.turns import RedisTurns
    from usechat.server.auth.jwt import JsonWebTokens
    from usechat.server.observers.opentelemetry import OpenTelemetryObserver
    from usechat.server.observers.prometheus import process_metrics
    from usechat.server.page import PageSettings, WithPage

__all__ = [
    "AccessPolicy",
    "Action",
    "AgentWorker",
    "ApiTokens",
    "AppRequest",
    "Authorize",
    "AuthorizedChats",
    "ChatApp",
    "Feedback",
    "Identity",
    "JsonFormatter",
    "JsonWebTokens",
    "Limits",
    "LocalPagesOnly",
    "MemoryRuns",
    "Observer",
    "Observers",
    "OpenTelemetryObserver",
    "PageSettings",
    "PolicyApp",
    "QuotaLimiter",
    "Quotas",
    "RedisRuns",
    "RedisTurns",
    "RunInfo",
    "RunState",
    "RunStore",
    "Settings",
    "Timeouts",
    "TokenRule",
    "WatchedFile",
    "WithPage",
    "allow_all",
    "bearer",
    "cancel_after",
    "chat_response",
    "counted_together",
    "is_welcome",
    "listen",
    "new_api_token",
    "openapi",
    "process_metrics",
    "restartable",
    "token_of",
    "with_cors",
]

# Imported on use: the page needs the checker, the others an extra.
_HOMES: Final = {
    "JsonWebTokens": "usechat.server.auth.jwt",
    "OpenTelemetryObserver": "usechat.server.observers.opentelemetry",
    "PageSettings": "usechat.server.page",
    "RedisRuns": "usechat.runs.redis.store",
    "RedisTurns": "usechat.runs.redis.turns",
    "WithPage": "usechat.server.page",
    "process_metrics": "usechat.server.observers.prometheus",
}

__getattr__ = lazy_names(__name__, _HOMES)
