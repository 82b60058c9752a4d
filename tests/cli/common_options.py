"""The options of `usechat serve` that all kinds share, as they are when none is given."""

from typing import Final

from usechat.runs.settings import Settings
from usechat.server.auth.origin import LocalPagesOnly
from usechat.targets import CommonOptions

COMMON: Final = CommonOptions(
    settings=Settings(),
    runs=None,
    token_rules=(),
    authorize=LocalPagesOnly(),
    path="/api/chat",
    idle_timeout=120,
    drain=10,
)
