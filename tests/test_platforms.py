"""The recipes of `docs/platforms.md`: the commands of their containers run here as processes, with real databases."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
import yaml

from scripts.generate_docs import ROOT
from tests.postgres_server import postgres_server
from tests.redis_server import SERVERS, redis_server
from tests.server.process import PATIENCE, question, serve_process
from usechat.server import new_api_token
from usechat.testing import AgentClient

pytestmark = pytest.mark.once

PAGE: Final = (ROOT / "docs" / "platforms.md").read_text(encoding="utf-8")
AGENT: Final = """
async def agent(turn):
    yield f"You said: {turn.text}"
"""
GRACE_SECONDS: Final = 10
"""What Cloud Run gives a container after SIGTERM."""


def block(language: str, heading: str) -> str:
    """Return the first block of a language below a heading."""
    [section] = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    found = re.search(rf"^```{language}\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


def manifests() -> dict[str, Any]:
    return {each["metadata"]["name"]: each for each in yaml.safe_load_all(block("yaml", "Kubernetes"))}


def pod_of(name: str) -> Any:
    return manifests()[name]["spec"]["template"]["spec"]


def drain_of(command: Sequence[str]) -> int:
    return int(command[command.index("--drain") + 1]) if "--drain" in command else 10


class Site:
    """Where the containers run: a directory with the agent and the tokens, a Redis and a PostgreSQL."""

    def __init__(self, directory: Path, redis: str, database: str) -> None:
        self.directory = directory
        self.token, line = new_api_token("ada")
        (directory / "my_app.py").write_text(AGENT, encoding="utf-8")
        (directory / "tokens.txt").write_text(line, encoding="utf-8")
        self._places = {
            "$(REDIS)": redis,
            "redis://redis:6379": redis,
            "redis://10.0.0.3:6379": redis,
            "$(DATABASE)": database,
            "postgresql+asyncpg://chat@10.0.0.4/chats": database,
            "tokens:/secrets/tokens": "tokens:tokens.txt",
            "tokens:/run/secrets/tokens": "tokens:tokens.txt",
            "0.0.0.0": "127.0.0.1",
        }

    def here(self, command: Sequence[str]) -> list[str]:
        """Return the arguments of a container's `usechat`, with the addresses of this machine."""
        assert command[0] == "usechat"
        return [self._places.get(part, part) for part in command[1:]]

    def run(self, command: Sequence[str]) -> None:
        subprocess.run(self._program(command), cwd=self.directory, check=True, capture_output=True, text=True)

    @contextmanager
    def running(self, command: Sequence[str]) -> Iterator[None]:
        """Run an agent process until the block ends."""
        process = subprocess.Popen(self._program(command), cwd=self.directory)
        try:
            yield
        finally:
            process.kill()
            process.wait(PATIENCE)

    def assert_answers(self, command: Sequence[str]) -> None:
        """Serve the web process of a platform, and ask it something with and without a token."""
        with serve_process(self.directory, *self.here(command)[1:]) as served:
            url, asked = f"{served.url}/api/chat", question("hi")
            headers = {"authorization": f"Bearer {self.token}"}
            assert "You said: hi" in httpx2.post(url, json=asked, headers=headers, timeout=PATIENCE).text
            assert httpx2.post(url, json=asked, timeout=PATIENCE).status_code == 401
            assert httpx2.get(f"{served.url}/healthz", timeout=PATIENCE).status_code == 200
            assert httpx2.get(f"{served.url}/readyz", timeout=PATIENCE).status_code == 200

    def _program(self, command: Sequence[str]) -> list[str]:
        return [sys.executable, "-c", "import sys; from usechat.cli import main; sys.exit(main())", *self.here(command)]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with postgres_server() as database, redis_server(next(iter(SERVERS))) as redis:
        yield Site(tmp_path, redis.url, database.replace("postgresql://", "postgresql+asyncpg://"))


def test_the_image_alone_answers(site: Site) -> None:
    command = re.findall(r"^CMD (.*)$", block("dockerfile", "Docker and compose"), re.MULTILINE)[-1]
    site.assert_answers(json.loads(command))


def test_the_web_process_and_the_agent_process_of_compose_answer_together(site: Site) -> None:
    services = yaml.safe_load(block("yaml", "Docker and compose"))["services"]
    with site.running(services["agents"]["command"]):
        site.assert_answers(services["web"]["command"])
    assert services["web"]["ports"] == ["127.0.0.1:8000:8000"]


def test_the_pods_of_kubernetes_answer_together(site: Site) -> None:
    web, agents = pod_of("chat-web"), pod_of("chat-agents")
    site.run(web["initContainers"][0]["command"])
    with site.running(agents["containers"][0]["command"]):
        site.assert_answers(web["containers"][0]["command"])


@pytest.mark.parametrize("name", ["chat-web", "chat-agents"])
def test_a_pod_has_the_time_the_files_and_the_names_that_its_command_needs(name: str) -> None:
    pod = pod_of(name)
    [container] = pod["containers"]
    assert pod["terminationGracePeriodSeconds"] > drain_of(container["command"])
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert "/tmp" in [mount["mountPath"] for mount in container["volumeMounts"]]
    volumes = {volume["name"] for volume in pod["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    named = {variable["name"] for variable in container["env"]}
    assert set(re.findall(r"\$\((\w+)\)", " ".join(container["command"]))) == named


def test_the_service_of_kubernetes_leads_to_the_web_pods() -> None:
    service, web = manifests()["chat"]["spec"], manifests()["chat-web"]["spec"]
    assert service["selector"] == web["template"]["metadata"]["labels"] == web["selector"]["matchLabels"]
    ports = pod_of("chat-web")["containers"][0]["ports"]
    assert [port["targetPort"] for port in service["ports"]] == [port["containerPort"] for port in ports]


def test_the_command_of_cloud_run_answers_and_ends_in_time(site: Site) -> None:
    command = block("sh", "Cloud Run").replace("\\\n", "").split()
    arguments = command[command.index("--args") + 1].split(",")
    assert command[command.index("--command") + 1] == "usechat"
    assert drain_of(arguments) < GRACE_SECONDS
    site.run(["usechat", "chats", "migrate", "--chats", "$(DATABASE)"])
    site.assert_answers(["usechat", *arguments])


def test_the_app_of_lambda_answers_and_ends_before_the_platform_does(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_URL", site.here(["usechat", "redis://redis:6379"])[0])
    names: dict[str, Any] = {}
    exec(compile(block("python", "AWS Lambda"), "platforms.md", "exec", dont_inherit=True), names)
    with AgentClient(names["app"]) as client:
        assert client.ask("hi").text == "You said: hi"
    assert names["settings"].timeouts.total < 15 * 60
    assert names["settings"].limits.maximum_bytes <= 6_000_000


def test_the_routes_of_vercel_lead_to_the_app() -> None:
    configuration: Mapping[str, Any] = json.loads(block("json", "Vercel"))
    [rewrite] = configuration["rewrites"]
    assert [bool(re.fullmatch(rewrite["source"], path)) for path in ("/api/chat", "/api/chat/c1/stream", "/")] == [
        True,
        True,
        False,
    ]
    assert [*configuration["functions"]] == [f"{rewrite['destination'].lstrip('/')}.py"]
