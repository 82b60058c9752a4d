"""`usechat serve --as agent-ops`: what it takes, what it refuses, and what it says about itself."""

import asyncio
import re
import shlex
from pathlib import Path
from typing import Any

import httpx2
import pytest

from examples.agent_ops_session.server import serving as serving_sessions
from tests.agent_ops.directories import directory_at, fill, sqlite
from tests.agent_ops.gateways import upstream
from tests.agent_ops.upstream_api import upstream_api
from tests.redis_server import redis_server
from tests.server.process import PATIENCE, eventually, question, serve_process
from usechat.cli import main
from usechat.cli.plan import Plan, make_app

ADDRESS = "ws://127.0.0.1:9/api/sessions/{id}/ws?role=client"
"""Where nobody listens."""

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def _directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("USECHAT_SESSIONS", raising=False)
    monkeypatch.delenv("ENABLE_AI_SDK_ADAPTER", raising=False)


async def ask(plan: Plan, token: str | None, session_id: str = "interactive") -> httpx2.Response:
    served = make_app(plan)
    transport = httpx2.ASGITransport(app=served.app)
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await client.post(f"/api/sessions/{session_id}/chat", json=question(), headers=headers)
    await served.chats[0].shut_down()
    return answer


async def token_of(subject: str, directory: Path) -> str:
    async with directory_at(sqlite(directory)) as sessions:
        return await (await fill(sessions)).new_token(subject)


def plan_with(**options: Any) -> Plan:
    return Plan(target=ADDRESS, kind="agent-ops", options=options)


async def test_the_directory_lets_its_people_in(tmp_path: Path) -> None:
    plan = plan_with(access=f"directory:{sqlite(tmp_path)}")
    token = await token_of("carl", tmp_path)
    answer = await ask(plan, token)
    assert (answer.status_code, '"errorText":"Connection failed"' in answer.text) == (200, True)
    assert (await ask(plan, None)).status_code == 401
    assert (await ask(plan, token, "workflow")).status_code == 404


async def test_a_lookup_asks_the_upstream_with_the_callers_token() -> None:
    session = {"role": "collaborator", "kind": "interactive"}
    async with upstream_api({"/api/sessions/interactive": (200, session)}) as api:
        plan = plan_with(access=f"lookup:{api.url}")
        assert (await ask(plan, "theirs")).status_code == 200
        assert [request.authorization for request in api.requests] == ["Bearer theirs"]
        assert (await ask(plan, "theirs", "another")).status_code == 404
        api.answers["/api/sessions/interactive"] = (401, {})
        assert (await ask(plan, "theirs")).status_code == 401
        api.answers["/api/sessions/interactive"] = (500, {})
        assert (await ask(plan, "theirs")).status_code == 503


def test_a_directory_without_tables_is_refused_with_the_command_that_creates_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["serve", "--as", "agent-ops", ADDRESS]) == 2
    complaint = "usechat: the directory's tables are missing or old; run: usechat sessions migrate"
    hint = "; or let the session server decide who may use a session: --access upstream"
    assert capsys.readouterr().err == f"{complaint}{hint}\n"
    Path("upstream.txt").write_text("secret\n", encoding="utf-8")
    assert main(["serve", "--as", "agent-ops", ADDRESS, "--upstream-token", "upstream.txt"]) == 2
    assert capsys.readouterr().err == f"{complaint}\n"


def test_the_line_of_the_readme_answers_in_an_empty_directory(tmp_path: Path) -> None:
    [line] = re.findall(r"`usechat serve (--as agent-ops[^`]*)`", README)
    arguments = shlex.split(line)
    with upstream() as behind:
        sessions = behind.start()
        [address] = [each for each in arguments if each.startswith("wss://")]
        arguments[arguments.index(address)] = sessions.url
        with serve_process(tmp_path, *arguments) as served:
            chat = f"{served.url}/api/sessions/s1/chat"
            headers = {"authorization": "Bearer ada"}
            answer = httpx2.post(chat, json=question("hello"), headers=headers, timeout=PATIENCE)
            assert (answer.status_code, '"delta":" hello"' in answer.text) == (200, True)
            assert httpx2.post(chat, json=question("hello"), timeout=PATIENCE).status_code == 401
            assert "\n  GET  /?session_id=SESSION (the chat page)\n" in served.written
            assert httpx2.get(f"{served.url}/?session_id=s1", timeout=PATIENCE).status_code == 200
        assert [user for user, _command in sessions["s1"].commands] == ["ada"]


async def test_with_access_upstream_the_session_server_refuses_strangers() -> None:
    async with serving_sessions() as sessions:
        sessions.strangers.add("eve")
        plan = Plan(target=sessions.url, kind="agent-ops", options={"access": "upstream"})
        answer = await ask(plan, "eve", "s1")
        assert (answer.status_code, '"errorText":"Connection failed"' in answer.text) == (200, True)
        assert (sessions.refused, sessions.connections) == (1, 0)


async def test_a_directory_that_cannot_be_read_yet_lets_nobody_in() -> None:
    plan = plan_with(access="directory:postgresql://nobody@127.0.0.1:9/sessions")
    assert (await ask(plan, "token")).status_code == 503


async def test_an_explicit_false_wins_over_the_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENABLE_AI_SDK_ADAPTER", "false")
    token = await token_of("carl", tmp_path)
    assert (await ask(plan_with(access=f"directory:{sqlite(tmp_path)}"), token)).status_code == 404


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["wss://example.org/ws"], "wss://example.org/ws is not an address such as wss://HOST/api/sessions/{id}/ws"),
        (["https://example.org/{id}"], "https://example.org/{id} is not an address such as wss://HOST/"),
        ([ADDRESS, "--access", "everybody"], "--access 'everybody' is not a rule; give directory, "),
        ([ADDRESS, "--path", "/chat"], f"--path has no effect on {ADDRESS} as agent-ops"),
        ([ADDRESS, "--conflict", "reject"], f"--conflict has no effect on {ADDRESS} as agent-ops"),
        ([ADDRESS, "--disconnect", "5"], f"--disconnect has no effect on {ADDRESS} as agent-ops"),
        ([ADDRESS, "--upstream-token", "nothing.txt"], "--upstream-token: nothing.txt cannot be read: No such file"),
        ([ADDRESS, "--access", "upstream", "--upstream-token", "a.txt"], "--access upstream lets the session server "),
        ([ADDRESS, "--access", "upstream:no"], "--access 'upstream:no' is not a rule; give directory, "),
        ([ADDRESS, "--max-sockets", "0"], "--max-sockets takes a number from 1 on, not 0"),
        ([ADDRESS, "--redis", "nonsense"], "--redis takes a URL such as redis://localhost:6379"),
    ],
)
def test_what_does_not_go_together_is_refused(
    capsys: pytest.CaptureFixture[str], arguments: list[str], complaint: str
) -> None:
    assert main(["sessions", "migrate"]) == 0
    assert main(["serve", "--as", "agent-ops", *arguments]) == 2
    assert capsys.readouterr().err.startswith(f"usechat: {complaint}")


def test_options_of_sessions_go_with_sessions_alone(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text("async def answer(turn):\n    yield 'Hi'\n", encoding="utf-8")
    assert main(["serve", "agent.py:answer", "--access", "directory"]) == 2
    assert capsys.readouterr().err == (
        "usechat: --access is an option of --as agent-ops, but agent.py:answer is a Python object\n"
    )


def test_it_says_how_to_try_it_and_serves_several_workers_without_redis(tmp_path: Path) -> None:
    assert main(["sessions", "migrate"]) == 0
    with serve_process(tmp_path, "--as", "agent-ops", ADDRESS, "--workers", "2") as served:
        assert f"usechat serves {ADDRESS} at {served.url}\n" in served.written
        assert "\n  POST /api/sessions/{session_id}/chat\n" in served.written
        assert f"curl -N {served.url}/api/sessions/SESSION/chat -H 'authorization: Bearer …'" in served.written
        assert httpx2.post(f"{served.url}/api/sessions/s1/chat", json=question(), timeout=PATIENCE).status_code == 401
        assert httpx2.get(f"{served.url}/readyz", timeout=PATIENCE).status_code == 200


async def test_the_upstreams_token_is_read_again_when_its_file_has_changed(tmp_path: Path) -> None:
    token = await token_of("carl", tmp_path)
    (tmp_path / "upstream.txt").write_text("old\n", encoding="utf-8")
    async with serving_sessions() as sessions:
        options = {"access": f"directory:{sqlite(tmp_path)}", "upstream_token": "upstream.txt", "max_sockets": 1}
        served = make_app(Plan(target=sessions.url, kind="agent-ops", options=options))
        transport = httpx2.ASGITransport(app=served.app)
        headers = {"authorization": f"Bearer {token}"}
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
            for name in ("old", "new"):
                (tmp_path / "upstream.txt").write_text(f"{name}\n", encoding="utf-8")
                answer = await client.post("/api/sessions/interactive/chat", json=question())
                assert '"type":"finish"' in answer.text
        await served.chats[0].shut_down()
        assert [user for user, _command in sessions["interactive"].commands] == ["old", "new"]


def test_with_redis_every_worker_resumes_and_stops_and_the_upstream_gets_its_own_token(tmp_path: Path) -> None:
    token = asyncio.run(token_of("carl", tmp_path))
    (tmp_path / "upstream.txt").write_text("theirs\n", encoding="utf-8")
    with redis_server("valkey") as redis, upstream() as behind:
        sessions = behind.start()
        options = ["--access", f"directory:{sqlite(tmp_path)}", "--upstream-token", "upstream.txt", "--no-page"]
        shared = ["--workers", "2", "--redis", redis.url]
        with serve_process(tmp_path, "--as", "agent-ops", sessions.url, *options, *shared) as served:
            chat = f"{served.url}/api/sessions/interactive/chat"
            with httpx2.Client(headers={"authorization": f"Bearer {token}"}, timeout=PATIENCE) as client:
                with client.stream("POST", chat, json=question("slow")) as first:
                    assert first.status_code == 200
                    session = sessions["interactive"]
                    eventually(lambda: session.busy, "the turn runs")
                    for _ in range(4):  # each asks whichever worker takes it
                        with (
                            httpx2.Client(headers=client.headers, timeout=PATIENCE) as other,
                            other.stream("GET", f"{chat}/c1/stream") as response,
                        ):
                            assert response.status_code == 200
                            assert next(line for line in response.iter_lines() if line.startswith("event: ")) == (
                                "event: message-start"
                            )
                    assert client.post(f"{chat}/c1/stop").status_code == 204
                    assert '"type":"abort"' in first.read().decode()
                assert client.get(f"{chat}/c1").json()["state"] == "stopped"
            eventually(lambda: not session.busy and not session.clients, "the turn is canceled")
            assert [(user, command["type"]) for user, command in session.commands] == [
                ("theirs", "prompt"),
                ("theirs", "abort"),
            ]


def test_it_says_that_it_is_switched_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENABLE_AI_SDK_ADAPTER", "false")
    with serve_process(tmp_path, "--as", "agent-ops", ADDRESS) as served:
        assert "ENABLE_AI_SDK_ADAPTER is set, but not to true: pages get 404.\n" in served.written
        assert httpx2.post(f"{served.url}/api/sessions/s1/chat", json=question(), timeout=PATIENCE).status_code == 404
