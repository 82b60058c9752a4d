"""`usechat serve --as temporal`: a real command before a real server."""

from pathlib import Path

import httpx2
import pytest
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest

from tests.certificate import write_certificate
from tests.server.process import PATIENCE, question, serve_process
from tests.temporal.pages import said
from tests.temporal.server import TemporalServer, WorkerProcess
from tests.temporal.tls import tls_before
from tests.temporal.travel import TEXTS
from usechat.cli import main

ROOT = Path(__file__).parents[2]
OPTIONS = ("--workflow", "Travel", "--task-queue", "travel")


@pytest.mark.parametrize("workflow", ["Travel", "tests.temporal.travel:Travel"])
def test_a_workflow_is_named_by_its_type_or_its_class(
    workflow: str, server: TemporalServer, worker: str, tmp_path: Path
) -> None:
    options = ["--workflow", workflow, "--task-queue", worker, "--sdk", "7"]
    path = {"PYTHONPATH": str(ROOT)}
    with serve_process(tmp_path, "--as", "temporal", server.address, *options, environment=path) as served:
        answer = said(httpx2.post(f"{served.url}/api/chat", json=question(), timeout=PATIENCE))
    assert answer.texts == TEXTS


async def test_the_namespace_comes_from_the_profile_file(server: TemporalServer, tmp_path: Path) -> None:
    client = await server.client()
    request = RegisterNamespaceRequest(namespace="trips")
    request.workflow_execution_retention_period.FromSeconds(24 * 3600)
    await client.workflow_service.register_namespace(request)
    profile = tmp_path / "temporal.toml"
    profile.write_text('[profile.default]\nnamespace = "trips"\n', encoding="utf-8")
    worker = WorkerProcess(server.address, "travel", namespace="trips")
    try:
        environment = {"TEMPORAL_CONFIG_FILE": str(profile)}
        target = ["--as", "temporal", server.address, *OPTIONS, "--sdk", "7"]
        with serve_process(tmp_path, *target, environment=environment) as served:
            async with httpx2.AsyncClient(timeout=PATIENCE) as page:
                answer = said(await page.post(f"{served.url}/api/chat", json=question(chat_id="profile")))
    finally:
        worker.stop()
    assert answer.texts == TEXTS
    assert [each.namespace async for each in client.list_workflows("WorkflowId STARTS_WITH 'usechat//profile/'")] == []


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    file = tmp_path / "certificate.pem"
    write_certificate(file, "127.0.0.1")
    return file


@pytest.mark.parametrize("place", ["environment", "profile"])
def test_tls_a_client_certificate_and_an_api_key_are_taken_as_temporal_takes_them(
    place: str, server: TemporalServer, worker: str, certificate: Path, tmp_path: Path
) -> None:
    client = tmp_path / "client.pem"
    write_certificate(client, "client")
    if place == "environment":
        environment = {
            "TEMPORAL_TLS_SERVER_CA_CERT_PATH": str(certificate),
            "TEMPORAL_TLS_CLIENT_CERT_PATH": str(client),
            "TEMPORAL_TLS_CLIENT_KEY_PATH": str(client),
            "TEMPORAL_API_KEY": "a-key",
        }
    else:
        file = tmp_path / "temporal.toml"
        file.write_text(
            f'[profile.cloud]\napi_key = "a-key"\n[profile.cloud.tls]\nserver_ca_cert_path = "{certificate}"\n'
            f'client_cert_path = "{client}"\nclient_key_path = "{client}"\n',
            encoding="utf-8",
        )
        environment = {"TEMPORAL_CONFIG_FILE": str(file), "TEMPORAL_PROFILE": "cloud"}
    with tls_before(server.address, certificate, clients=client) as tls:
        target = ["--as", "temporal", tls.address, "--workflow", "Travel", "--task-queue", worker, "--sdk", "7"]
        with serve_process(tmp_path, *target, environment=environment) as served:
            answer = said(httpx2.post(f"{served.url}/api/chat", json=question(chat_id=place), timeout=PATIENCE))
    assert answer.texts == TEXTS, answer.text
    assert tls.keys == {"Bearer a-key"}


def test_a_certificate_that_nobody_trusts_is_refused(
    server: TemporalServer, worker: str, certificate: Path, tmp_path: Path
) -> None:
    environment = {"TEMPORAL_API_KEY": "a-key"}
    with tls_before(server.address, certificate) as tls:
        target = ["--as", "temporal", tls.address, "--workflow", "Travel", "--task-queue", worker, "--sdk", "7"]
        with serve_process(tmp_path, *target, environment=environment) as served:
            answer = said(httpx2.post(f"{served.url}/api/chat", json=question(), timeout=PATIENCE))
            assert "the Temporal server cannot be reached: " in served.written
    assert answer.status == 503
    assert tls.keys == set(), "a key is shown to nobody who is not trusted"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["http://temporal", *OPTIONS], "'http://temporal' is not the address of a Temporal server; give HOST:PORT"),
        (["127.0.0.1:7233", "--workflow", "Travel"], "--as temporal needs --task-queue NAME"),
        (["127.0.0.1:7233", "--task-queue", "travel"], "--as temporal needs --workflow NAME"),
        (["127.0.0.1:7233", "--workflow", "tests.temporal.travel:nothing", "--task-queue", "q"],
         "tests.temporal.travel has no 'nothing'"),
        (["127.0.0.1:7233", "--workflow", "tests.temporal.travel:request", "--task-queue", "q"],
         "request is not a workflow; decorate the class with @workflow.defn"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_a_sentence(arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--as", "temporal", *arguments]) == 2
    assert sentence in capsys.readouterr().err


def test_settings_that_cannot_be_read_are_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "temporal.toml"
    broken.write_text("[profile.default\n", encoding="utf-8")
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(broken))
    assert main(["serve", "--as", "temporal", "127.0.0.1:7233", *OPTIONS]) == 2
    assert "Temporal's settings in the environment or in its profile file are wrong: " in capsys.readouterr().err


async def test_a_namespace_that_is_not_there_is_named_in_the_log(server: TemporalServer, tmp_path: Path) -> None:
    environment = {"TEMPORAL_NAMESPACE": "nowhere"}
    target = ["--as", "temporal", server.address, *OPTIONS, "--sdk", "7"]
    with serve_process(tmp_path, *target, environment=environment) as served:
        async with httpx2.AsyncClient(timeout=PATIENCE) as page:
            answer = said(await page.post(f"{served.url}/api/chat", json=question()))
        assert '"errorText":"The agent cannot be reached. Please try again later."' in answer.text
        assert "the Temporal server refuses the turn: Namespace nowhere is not found." in served.written
