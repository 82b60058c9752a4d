"""The agent: it runs the script that a prompt names, and reports it in the runner's dialect."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeAlias

Event: TypeAlias = Mapping[str, Any]


class Stage(Protocol):
    """What a script can do in its session."""

    def publish(self, event: Event) -> None:
        """Publish an event of the runner."""
        ...

    async def drain(self) -> None:
        """Wait until nearly all published events are sent."""
        ...

    async def ask(self, text: str, options: list[str]) -> Any:
        """Ask people a question, and wait for the answer."""
        ...

    async def approve(self, tool_name: str, args: Mapping[str, Any]) -> Mapping[str, Any]:
        """Ask people whether a tool may run; return their resolution.

        ``actionId`` says for how long it was approved: the keys of ``APPROVED``.
        """
        ...

    def lose_runner(self) -> None:
        """Disconnect the runner, and reconnect it without its turn."""
        ...

    def cut_off(self) -> None:
        """Abort every connection."""
        ...


class Play:
    """One turn of the agent."""

    def __init__(self, stage: Stage, turn_id: str, channel: Mapping[str, str]) -> None:
        self.stage = stage
        self.turn_id = turn_id
        self._channel = channel

    def begin(self) -> None:
        self.stage.publish({"type": "agentStatus", "status": "thinking", **self._channel})
        self.stage.publish({"type": "message.create", "turnId": self.turn_id, **self._channel})

    def write(self, *deltas: str) -> None:
        for delta in deltas:
            self.stage.publish({"type": "message.part.text-delta", "turnId": self.turn_id, "delta": delta})

    def tool(self, call_id: str, status: str, **more: Any) -> None:
        call = {"turnId": self.turn_id, "callId": f"{self.turn_id}-{call_id}", "toolName": "read_file"}
        self.stage.publish({"type": "message.part.tool-update", **call, "status": status, **more})

    def finalize(self, reason: str = "end_turn", **more: Any) -> None:
        self.stage.publish({"type": "message.finalize", "turnId": self.turn_id, "reason": reason, **more})


ARGS = {"path": "README.md"}
APPROVED = {
    "approve": "Approved.",
    "allow_session": "Approved for this session.",
    "allow_always": "Approved for good.",
}


async def echo(play: Play, text: str) -> None:
    play.begin()
    play.write("You said:", *(f" {word}" for word in text.split()))
    play.finalize(finalText=f"You said: {' '.join(text.split())}")


async def use_tool(play: Play, _rest: str) -> None:
    play.begin()
    play.write("Let me", " look.")
    play.tool("1", "pending")
    play.tool("1", "running", args=ARGS)
    play.tool("1", "completed", args=ARGS, result="# Agent Ops")
    play.write("It is", " a title.")
    play.finalize(finalText="It is a title.")


async def use_two_tools(play: Play, _rest: str) -> None:
    play.begin()
    for call_id in ("1", "2"):
        play.tool(call_id, "running", args={"path": call_id})
    play.tool("2", "completed", args={"path": "2"}, result="two")
    play.tool("1", "completed", args={"path": "1"}, result="one")
    play.write("Both read.")
    play.finalize()


async def fail_tool(play: Play, _rest: str) -> None:
    play.begin()
    play.tool("1", "running", args=ARGS)
    play.tool("1", "error", args=ARGS, error="No such file")
    play.write("There is no such file.")
    play.finalize()


async def fail(play: Play, _rest: str) -> None:
    play.begin()
    play.write("I will")
    play.finalize("error", error="The model is overloaded.")


async def fail_early(play: Play, _rest: str) -> None:
    play.stage.publish({"type": "message.finalize", "turnId": None, "reason": "error", "error": "No model is set up."})


async def report_error(play: Play, _rest: str) -> None:
    play.begin()
    play.write("I will")
    play.stage.publish({"type": "error", "messageId": play.turn_id, "error": "The sandbox is gone."})


async def be_empty(play: Play, _rest: str) -> None:
    play.begin()
    play.finalize()


async def be_canceled(play: Play, _rest: str) -> None:
    play.begin()
    play.write("I was")
    play.finalize("canceled")


async def count(play: Play, rest: str) -> None:
    play.begin()
    for number in range(int(rest or "10")):
        play.write(f"{number} ")
        await play.stage.drain()
    play.finalize()


async def flood(play: Play, rest: str) -> None:
    play.begin()
    for _ in range(int(rest or "50") * 64):
        play.write("x" * 16 * 1024)
        await play.stage.drain()
    play.finalize()


async def be_slow(play: Play, _rest: str) -> None:
    play.begin()
    while True:
        play.write("tick ")
        await asyncio.sleep(0.02)


async def be_silent(_play: Play, _rest: str) -> None:
    await asyncio.Event().wait()


async def hang(play: Play, _rest: str) -> None:
    play.begin()
    play.write("Well")
    await asyncio.Event().wait()


async def be_late(play: Play, _rest: str) -> None:
    play.begin()
    play.tool("1", "running", args=ARGS)
    play.finalize(finalText="Done.")
    play.tool("1", "completed", args=ARGS, result="late")


async def get_stuck(play: Play, _rest: str) -> None:
    play.begin()
    play.tool("1", "running", args=ARGS)
    play.finalize(finalText="Done.")


async def get_stuck_for_ever(play: Play, rest: str) -> None:
    await get_stuck(play, rest)
    await asyncio.Event().wait()


async def say_it_at_the_end(play: Play, _rest: str) -> None:
    play.begin()
    play.finalize(finalText="All at once.")


async def ask(play: Play, _rest: str) -> None:
    play.begin()
    play.write("One moment.")
    play.tool("1", "running", args={"question": "Deploy?"})
    answer = await play.stage.ask("Deploy to production?", ["yes", "no"])
    play.tool("1", "completed", args={"question": "Deploy?"}, result=str(answer))
    play.write(f"You answered: {answer}")
    play.finalize(finalText=f"You answered: {answer}")


async def ask_for_approval(play: Play, _rest: str) -> None:
    play.begin()
    play.write("May I?")
    play.tool("1", "running", args=ARGS)
    decision = await play.stage.approve("read_file", ARGS)
    if text := APPROVED.get(str(decision.get("actionId"))):
        play.tool("1", "completed", args=ARGS, result="# Agent Ops")
        play.write(text)
    else:
        reason = str(decision.get("value")).lower()  # an `answer` of true is the reason "true" of a denial
        play.tool("1", "error", args=ARGS, error=f"Denied: {reason}")
        play.write(f"Denied: {reason}")
    play.finalize()


async def lose_runner(play: Play, _rest: str) -> None:
    play.begin()
    play.write("I will be")
    play.stage.lose_runner()
    await asyncio.Event().wait()


async def die(play: Play, _rest: str) -> None:
    play.begin()
    play.write("I will be")
    await play.stage.drain()
    play.stage.cut_off()


async def be_strange(play: Play, _rest: str) -> None:
    play.begin()
    play.stage.publish({"type": "quantum-state", "spin": 1})
    play.stage.publish({"type": "git-state", "data": {"branch": "main"}})
    play.stage.publish({"type": "toast", "title": "Hello"})
    play.stage.publish({"type": "message.part.text-delta", "turnId": 7})
    play.write("Still here.")
    play.finalize()


SCRIPTS: Mapping[str, Callable[[Play, str], Awaitable[None]]] = {
    "tool": use_tool,
    "two tools": use_two_tools,
    "fail tool": fail_tool,
    "fail early": fail_early,
    "fail": fail,
    "error": report_error,
    "empty": be_empty,
    "cancel": be_canceled,
    "count": count,
    "flood": flood,
    "slow": be_slow,
    "silent": be_silent,
    "hang": hang,
    "late": be_late,
    "stuck for ever": get_stuck_for_ever,
    "stuck": get_stuck,
    "final": say_it_at_the_end,
    "ask": ask,
    "approve": ask_for_approval,
    "lose runner": lose_runner,
    "die": die,
    "strange": be_strange,
}
"""The scripts by the first words of a prompt; a longer name comes before its own prefix."""


async def perform(play: Play, prompt: str) -> None:
    """Run the script that the prompt names, or echo the prompt."""
    for name, script in SCRIPTS.items():
        if prompt == name or prompt.startswith(f"{name} "):
            await script(play, prompt[len(name) :].strip())
            return
    await echo(play, prompt)
