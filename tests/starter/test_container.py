"""The containers of a project: what they copy and start. There is no Docker here; their commands run as processes."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from tests.postgres_server import postgres_server
from tests.redis_server import SERVERS, redis_server
from tests.server.process import PATIENCE, question, serve_process
from usechat.server import new_api_token
from usechat.starter.project import FRAMEWORKS, PAGES, Framework, Page, Project

LOCKS = {"uv.lock", "web/package-lock.json"}
"""What `uv sync` and `npm install` write."""


def files_of(framework: Framework = "pydantic-ai", page: Page = "none", *, is_vendored: bool = True) -> dict[str, str]:
    return Project("my-chat", framework, page, is_vendored).files()


def copied(dockerfile: str) -> list[str]:
    lines = [
        line.split()[1:-1] for line in dockerfile.splitlines() if line.startswith("COPY ") and "--from" not in line
    ]
    return [name for names in lines for name in names]


def steps_of(workflow: Any, job: str) -> list[str]:
    return [step["run"] for step in workflow["jobs"][job]["steps"] if "run" in step]


@pytest.mark.parametrize("page", PAGES)
def test_an_image_copies_what_is_there_and_what_is_not_ignored(page: Page) -> None:
    files = files_of(page=page)
    names = copied(files["Dockerfile"])
    paths = [*files, *LOCKS, "vendor/usechat.whl"]
    assert [name for name in names if not any(path == name or path.startswith(f"{name}/") for path in paths)] == []
    allowed = re.findall(r"^!(\S+)$", files[".dockerignore"], re.MULTILINE)
    assert [
        name for name in names if not any(Path(name).match(each) or name.startswith(each) for each in allowed)
    ] == []


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_project_has_the_extras_of_the_image_that_the_guide_shows(framework: Framework) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "platforms.md").read_text(encoding="utf-8")
    image = re.search(r"^RUN pip install --no-cache-dir 'usechat\[(.+)\]'$", guide, re.MULTILINE)
    project = re.search(r'"usechat\[(.+)\]>=', files_of(framework)["pyproject.toml"])
    assert image is not None
    assert project is not None
    assert {*image[1].split(","), "chats"} <= {*project[1].split(",")}


def test_the_page_of_next_is_an_image_of_its_own() -> None:
    files = files_of(page="next")
    assert copied(files["web/Dockerfile"]) == ["package.json", "package-lock.json", "."]
    assert 'output: "standalone"' in files["web/next.config.ts"]


def test_an_image_has_the_wheel_of_usechat_only_if_the_project_has() -> None:
    images = [files_of(is_vendored=is_vendored)["Dockerfile"] for is_vendored in (True, False)]
    assert ["COPY vendor vendor" in image for image in images] == [True, False]


@pytest.mark.parametrize(
    ("page", "ports"),
    [
        ("none", {"app": ["127.0.0.1:8000:8000"]}),
        ("vite", {"app": ["127.0.0.1:8000:8000"]}),
        ("next", {"page": ["127.0.0.1:3000:3000"]}),
    ],
)
def test_only_the_page_can_be_reached_and_only_from_this_machine(page: Page, ports: dict[str, list[str]]) -> None:
    services = yaml.safe_load(files_of(page=page)["compose.yaml"])["services"]
    assert {name: service["ports"] for name, service in services.items() if "ports" in service} == ports


@pytest.mark.parametrize("framework", ["none", "langgraph"])
def test_compose_asks_for_each_value_that_the_example_names(framework: Framework) -> None:
    files = files_of(framework)
    named = re.findall(r"^(\w+)=$", files[".env.example"], re.MULTILINE)
    assert set(re.findall(r"\$\{(\w+):\?", files["compose.yaml"])) == set(named)
    assert ("OPENAI_API_KEY" in named) == (framework != "none")


@pytest.mark.parametrize("page", PAGES)
def test_ci_checks_the_agent_and_the_page(page: Page) -> None:
    workflow = yaml.safe_load(files_of(page=page)[".github/workflows/ci.yml"])
    assert steps_of(workflow, "agent") == [
        "uv sync --locked",
        "uv run ruff check",
        "uv run ruff format --check",
        "uv run mypy .",
        "uv run pytest",
    ]
    assert ("page" in workflow["jobs"]) == (page != "none")
    if page != "none":
        assert steps_of(workflow, "page") == ["npm ci", "npm run build"]
        assert "build" in json.loads(files_of(page=page)["web/package.json"])["scripts"]


def test_what_compose_starts_stores_chats_in_postgresql_and_lets_only_known_people_in(tmp_path: Path) -> None:
    files = files_of("none")
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    token, line = new_api_token("ada")
    (tmp_path / "tokens.txt").write_text(line, encoding="utf-8")
    start = json.loads(re.findall(r"^CMD (.*)$", files["Dockerfile"], re.MULTILINE)[-1])
    services = yaml.safe_load(files["compose.yaml"])["services"]
    assert start[:4] == ["usechat", "serve", "app:app", "--host"]
    with postgres_server() as database, redis_server(next(iter(SERVERS))) as redis:
        environment = {
            "TOKENS": str(tmp_path / "tokens.txt"),
            "DATABASE_URL": database.replace("postgresql://", "postgresql+asyncpg://"),
            "REDIS_URL": redis.url,
        }
        assert set(services["app"]["environment"]) == set(environment) - {"TOKENS"}
        migrate(services["migrate"], environment, tmp_path)
        headers = {"authorization": f"Bearer {token}"}
        with serve_process(tmp_path, start[2], *start[5:], is_app=True, environment=environment) as app:
            asked = question("Where is order 1002?")
            answer = httpx2.post(f"{app.url}/api/chat", json=asked, headers=headers, timeout=PATIENCE)
            assert "is on its way." in answer.text
            assert httpx2.post(f"{app.url}/api/chat", json=asked, timeout=PATIENCE).status_code == 401
            assert httpx2.get(f"{app.url}/readyz", timeout=PATIENCE).status_code == 200
        with serve_process(tmp_path, start[2], *start[5:], is_app=True, environment=environment) as app:
            chats = httpx2.get(f"{app.url}/api/chats", headers=headers, timeout=PATIENCE).json()["chats"]
            assert [chat["title"] for chat in chats] == ["Where is order 1002?"]
        (tmp_path / "tokens.txt").unlink()
        refused = serve_process(tmp_path, start[2], *start[5:], is_app=True, environment=environment)
        with pytest.raises(AssertionError, match=r"tokens\.txt cannot be read"), refused:
            pytest.fail("a server that everyone may use has started")


def migrate(service: Any, environment: dict[str, str], directory: Path) -> None:
    """Run the command of the service that makes the tables; `usechat` is that of this environment."""
    command = [part.replace("$$", "$") for part in service["command"]]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, **environment, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, shlex.join(command) + ran.stdout + ran.stderr
