"""The programs and packages that stages of the Makefile install for their tests."""

import os
import shutil
from typing import Final, NoReturn

import pytest

REQUIRED: Final = "USECHAT_REQUIRE_PROGRAMS"
"""These stages set this variable to 1 where they can install everything: nothing is skipped there."""


def missing(name: str, stage: str = "test-deploy") -> NoReturn:
    """Skip a test because of a program or package that is missing; fail it where all of them should be installed."""
    sentence = f"{name} is not installed: `make {stage}` installs it, as root of a system with apt"
    if os.environ.get(REQUIRED) == "1":
        pytest.fail(sentence, pytrace=False)
    pytest.skip(sentence)


def program(name: str, stage: str = "test-deploy") -> str:
    """Return the path of a program, also if only root finds it."""
    path = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    return path or missing(name, stage)
