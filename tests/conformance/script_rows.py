"""Which client plays a script with a framework: they take turns.

A framework decides which parts are sent, a client what becomes of them. All combinations would prove both again and
again. So each script is played once with every framework and model API, and the clients take turns: each of them plays
every script, and with every framework. Live and recorded frameworks are played with the same clients.
"""

import itertools
from collections.abc import Iterable, Iterator

from tests.adapters.agents import Api, Framework
from tests.adapters.scripts import SCRIPTS, Script
from tests.conformance.http_client import NEWEST, WITH_APPROVALS

Row = tuple[Framework, Script, Api, str]


def rows_of(frameworks: Iterable[Framework]) -> list[Row]:
    """Return the rows of these frameworks; the client is the last item."""
    return list(itertools.chain.from_iterable(map(_rows_of, itertools.count(), frameworks)))


def clients_in_turn(scripts: Iterable[Script]) -> list[tuple[Script, str]]:
    """Return the scripts, each with the client that plays it."""
    pairs = ((script, WITH_APPROVALS if script.approvals else NEWEST) for script in scripts)
    return [(script, clients[turn % len(clients)]) for turn, (script, clients) in enumerate(pairs)]


def name_of(row: Row) -> str:
    """Return the name of a row among the tests."""
    framework, script, api, release = row
    return f"{framework.name}: {script.name}, {api}, {release}"


def _rows_of(number: int, framework: Framework) -> Iterator[Row]:
    for turn, script in enumerate(SCRIPTS, number):
        clients = WITH_APPROVALS if script.approvals else NEWEST
        apis = [api for api in framework.apis if api in script.apis and script.name not in framework.not_played]
        yield from ((framework, script, api, clients[(turn + each) % len(clients)]) for each, api in enumerate(apis))
