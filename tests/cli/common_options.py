"""The options of `usechat serve` that all kinds share, as they are when none is given."""

from typing import Final

from usechat.cli.targets import CommonOptions
from usechat.server.auth.origin import LocalPagesOnly
from usechat.server.settings import Settings

COMMON: Final = CommonOptions(
    settings=Settings(),
    runs=None,
    token_rules=(),
    authorize=LocalPagesOnly(),
    path="/api/chat",
    idle_timeout=120,
    drain=10,
)
