"""The servers are those that the tests bring, whatever the machine has."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.classes import TESTS
from tests.redis_server import SERVERS

pytestmark = pytest.mark.once


def servers_on(machine: Path, **variables: str) -> set[str]:
    """Return the kinds of servers that the tests would use on a machine with a Redis."""
    (machine / "redis-server").touch(mode=0o755)
    environment = {name: value for name, value in os.environ.items() if name != "USECHAT_REDIS_SERVER"}
    path = os.pathsep.join([str(machine), os.environ["PATH"]])
    process = subprocess.run(
        [sys.executable, "-c", "from tests.redis_server import SERVERS; print(*SERVERS)"],
        cwd=TESTS.parent,
        env={**environment, "PATH": path, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(process.stdout.split())


def test_a_redis_of_the_machine_is_not_used(tmp_path: Path) -> None:
    assert servers_on(tmp_path) == set(SERVERS) - {"redis"}


def test_a_redis_that_is_named_is_used_too(tmp_path: Path) -> None:
    assert servers_on(tmp_path, USECHAT_REDIS_SERVER=str(tmp_path / "redis-server")) == {*SERVERS, "redis"}
