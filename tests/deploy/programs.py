"""The programs and packages that the tests of deployments start."""

import os
import shutil
from typing import Final, NoReturn

import pytest

REQUIRED: Final = "USECHAT_REQUIRE_PROGRAMS"
"""`make test-deploy` sets this variable to 1 where it can install everything: nothing is skipped there."""


def missing(name: str) -> NoReturn:
    """Skip a test because of a program or package that is missing; fail it where all of them should be installed."""
    sentence = f"{name} is not installed: `make test-deploy` installs it, as root of a system with apt"
    if os.environ.get(REQUIRED) == "1":
        pytest.fail(sentence, pytrace=False)
    pytest.skip(sentence)


def program(name: str) -> str:
    """Return the path of a program, also if only root finds it."""
    path = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    return path or missing(name)
