"""The kinds of `usechat serve --as`: ours and those of other packages, their options, and a missing extra."""

import argparse
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import httpx2
import pytest

from tests.server.process import PATIENCE, question, serve_process
from usechat.cli import main
from usechat.cli.plan import Plan, make_app
from usechat.cli.targets import kind_of
from usechat.errors import CannotServe
from usechat.targets import OptionGroup, Target, installed_targets

PARROTS = """
import msgspec
from usechat.targets import NoOptions, TargetAgent

class ParrotOptions(msgspec.Struct, frozen=True):
    volume: int = 1
    greeting: tuple[str, ...] = ()

class ParrotTarget:
    summary = "a parrot (.parrot)"
    options = ParrotOptions

    def recognises(self, target):
        return target.endswith(".parrot")

    def add_options(self, group):
        group.add_argument("--volume", type=int, metavar="N", help="how loud it is")
        group.add_argument("--greeting", action="append", metavar="TEXT", help="say this first; repeatable")

    def open(self, target, options, common):
        return TargetAgent(lambda turn: " ".join([*options.greeting, *[turn.text] * options.volume]))

class TwinTarget(ParrotTarget):
    summary = "one of two parrots"
    options = NoOptions

    def add_options(self, group):
        group.add_argument("--greeting", action="append", metavar="TEXT", help="what it answers first")

class PathTarget(ParrotTarget):
    def add_options(self, group):
        group.add_argument("--path", help="taken by the command itself")

class CountingTarget(ParrotTarget):
    def add_options(self, group):
        group.add_argument("--input", type=int, help="read in another way by a kind of usechat")
"""
ENTRY_POINTS = """
[usechat.targets]
broken = parrots:Nothing
parrot = parrots:ParrotTarget
twin = parrots:TwinTarget
"""


@pytest.fixture
def parrots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Kinds of another package, installed as pip does it."""
    installed = tmp_path / "parrots-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: parrots\nVersion: 1.0\n", encoding="utf-8")
    (installed / "entry_points.txt").write_text(ENTRY_POINTS, encoding="utf-8")
    (tmp_path / "parrots.py").write_text(PARROTS, encoding="utf-8")
    (tmp_path / "agent.py").write_text("def answer(turn):\n    return 'Hi'\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    installed_targets.cache_clear()
    yield tmp_path
    installed_targets.cache_clear()
    for name in ("parrots", "agent"):
        sys.modules.pop(name, None)


def help_of_serve(capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit):
        main(["serve", "--help-all"])
    return capsys.readouterr().out


@pytest.mark.usefixtures("parrots")
def test_a_kind_of_another_package_brings_its_options_to_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of_serve(capsys)
    kinds = "a2a, ag-ui, agent-ops, ai-sdk, genkit, open-harness, recording, temporal, broken, parrot or twin"
    assert f"the kind of OBJECT: {kinds} --context" in " ".join(text.split())
    assert "for --as parrot:\n  OBJECT is a parrot (.parrot)\n\n  --volume N " in text
    assert "for --as twin:\n  OBJECT is one of two parrots\n  --greeting: what it answers first\n" in text
    assert "for --as broken:\n  OBJECT is unknown: the kind broken cannot be loaded: AttributeError: " in text


def test_a_kind_of_another_package_is_served_with_its_options(parrots: Path) -> None:
    with serve_process(parrots, "--as", "parrot", "somewhere", "--volume", "2", "--greeting", "Krah!") as served:
        answer = httpx2.post(f"{served.url}/api/chat", json=question("hello"), timeout=PATIENCE)
        assert '"delta":"Krah! hello hello"' in answer.text


@pytest.mark.usefixtures("parrots")
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            ["agent:answer", "--volume", "2"],
            "--volume is an option of --as parrot, but agent:answer is a Python object",
        ),
        (
            ["--as", "open-harness", "ws://localhost/ws", "--greeting", "x"],
            "--greeting is an option of --as parrot, --as twin, but ws://localhost/ws is served as open-harness",
        ),
        (["--as", "twin", "x", "--volume", "2"], "--volume is an option of --as parrot, but x is served as twin"),
        (["bird.parrot"], "bird.parrot may be one of parrot, twin; choose one with --as"),
        (
            ["--as", "broken", "x"],
            "the kind broken cannot be loaded: AttributeError: module 'parrots' has no attribute",
        ),
    ],
)
def test_what_does_not_go_together_is_told_in_one_sentence(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--port", "0", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"usechat: {complaint}")
    assert error.count("\n") == 1


@pytest.mark.usefixtures("parrots")
def test_options_that_a_kind_cannot_read_are_told() -> None:
    with pytest.raises(CannotServe, match="the options of --as parrot are wrong: Expected `int`"):
        make_app(Plan(target="x", kind="parrot", options={"volume": "loud"}))


def test_a_kind_that_wants_an_option_of_the_command_itself_does_not_disturb_others(
    parrots: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = ENTRY_POINTS + "greedy = parrots:PathTarget\n"
    (parrots / "parrots-1.0.dist-info" / "entry_points.txt").write_text(entries, encoding="utf-8")
    text = help_of_serve(capsys)
    complaint = "for --as greedy: its options cannot be used: argument --path: conflicting option string: --path"
    assert complaint in " ".join(text.split())
    assert "for --as parrot:\n  OBJECT is a parrot" in text


def test_an_option_that_two_kinds_read_in_different_ways_is_the_first_ones(
    parrots: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = ENTRY_POINTS + "aaa = parrots:CountingTarget\n"
    (parrots / "parrots-1.0.dist-info" / "entry_points.txt").write_text(entries, encoding="utf-8")
    text = help_of_serve(capsys)
    complaint = "for --as aaa: its options cannot be used: --input is read in another way by another kind; give it"
    assert complaint in " ".join(text.split())
    assert "--input KEY=SOURCE,..." in text


@pytest.mark.parametrize("name", ["agent-ops", "genkit", "open-harness"])
def test_our_own_kinds_have_a_field_for_each_option_with_a_default(name: str) -> None:
    kind: Target = installed_targets()[name]
    group = OptionGroup(argparse.ArgumentParser().add_argument_group(name, ""), {})
    kind.add_options(group)
    assert set(group.flags) == set(kind.options.__struct_fields__)
    kind.options()


def test_the_help_imports_no_server_and_nothing_that_a_kind_needs() -> None:
    program = "import sys; from usechat.cli import main\ntry: main(['serve', '--help'])\nfinally: print(*sys.modules)"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    loaded = printed.splitlines()[-1].split()
    assert "usechat.cli.serve" in loaded
    heavy = {"asyncio", "starlette", "uvicorn", "httpx2", "sqlalchemy", "yaml", "genkit", "usechat.server"}
    assert heavy & set(loaded) == set()


@pytest.mark.parametrize(
    ("target", "kind"),
    [("flow.yaml", "open-harness"), ("flows/other.yml", "open-harness"), ("my_app:agent", None), ("wss://a", None)],
)
def test_a_flow_file_shows_its_kind_by_itself(target: str, kind: str | None) -> None:
    assert kind_of(target) == kind


def test_other_kinds_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["serve", "--as", "telepathy", "mind"])
    assert raised.value.code == 2
    assert "invalid choice: 'telepathy'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("package", "arguments", "sentence"),
    [
        (
            "sqlalchemy",
            ["--as", "agent-ops", "wss://example.org"],
            "sqlalchemy is not installed; run: pip install 'usechat[agent-ops]'",
        ),
        ("yaml", ["flow.yaml"], "pyyaml is not installed; run: pip install 'usechat[open-harness]'"),
        (
            "yaml",
            ["--as", "open-harness", "x.yml"],
            "pyyaml is not installed; run: pip install 'usechat[open-harness]'",
        ),
    ],
)
def test_a_missing_extra_is_one_sentence(tmp_path: Path, package: str, arguments: list[str], sentence: str) -> None:
    for name in ("flow.yaml", "x.yml"):
        (tmp_path / name).write_text("name: empty\n")
    program = (
        f"import sys; sys.modules[{package!r}] = None; from usechat.cli import main;"
        f" sys.exit(main(['serve', '--port', '0', *{arguments!r}]))"
    )
    failed = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert (failed.returncode, failed.stdout, failed.stderr) == (2, "", f"usechat: {sentence}\n")


def test_every_kind_stands_in_a_room_of_its_own() -> None:
    places = {entry.value for entry in entry_points(group="usechat.targets")}
    assert [place for place in places if place.startswith(("usechat.cli.", "usechat.server."))] == []
