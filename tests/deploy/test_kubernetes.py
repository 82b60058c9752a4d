"""The manifests of `docs/platforms.md` against the schemas of Kubernetes, which are installed apart."""

import copy
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.deploy.programs import missing
from tests.deploy.test_frameworks import PACKAGES
from tests.test_platforms import manifests

VERSION: Final = "1.37.0"


def validate(resource: Any, directory: Path) -> "subprocess.CompletedProcess[str]":
    if not (PACKAGES / "kubernetes_validate").is_dir():
        missing("kubernetes-validate")
    file = directory / "resource.yaml"
    file.write_text(yaml.safe_dump(resource), encoding="utf-8")
    command = [sys.executable, "-m", "kubernetes_validate", "--strict", "--kubernetes-version", VERSION, str(file)]
    environment = {**os.environ, "PYTHONPATH": str(PACKAGES)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", sorted(manifests()))
def test_a_manifest_is_valid(name: str, tmp_path: Path) -> None:
    ran = validate(manifests()[name], tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_misspelt_field_is_found(tmp_path: Path) -> None:
    wrong = copy.deepcopy(manifests()["chat-web"])
    wrong["spec"]["template"]["spec"]["terminationGracePeriod"] = 30
    ran = validate(wrong, tmp_path)
    assert ran.returncode != 0
    assert "terminationGracePeriod" in ran.stdout + ran.stderr
