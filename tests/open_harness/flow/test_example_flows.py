"""The flows in `examples/flows`, with models that follow a script."""

import json
from typing import Any

import yaml
from pydantic_ai.models.function import DeltaToolCall

from tests.open_harness.flow_runs import FLOWS, run
from tests.open_harness.scripted_models import Script, answering, call
from usechat.open_harness.flow.expressions import expressions_in
from usechat.open_harness.flow.reading import load_flow
from usechat.open_harness.nodes.builtin import default_registry


async def test_the_chat_flow_answers_the_message() -> None:
    script = Script(["Good ", "day."])
    log, snapshot = await run(FLOWS / "chat-flow.yaml", {"message": "Hello"}, registry=script.registry)
    assert script.requests == [[("user-prompt", "Hello")]]
    assert snapshot["outputs"]["assistant"]["text"] == "Good day."
    assert log.brief() == [
        "flow:start",
        "node:start assistant.1",
        "agent:start assistant.1",
        "agent:text:delta assistant.1",
        "agent:text:delta assistant.1",
        "agent:text assistant.1",
        "agent:complete assistant.1",
        "node:complete assistant.1",
        "flow:complete complete",
    ]


async def test_the_summarizer_of_the_research_flow_reads_the_researcher() -> None:
    script = Script(["Bees dance."], ["They dance."])
    log, snapshot = await run(FLOWS / "research-flow.yaml", {"topic": "bees"}, registry=script.registry)
    assert script.requests == [
        [("user-prompt", "Research: bees")],
        [("user-prompt", "Summarize: Bees dance.")],
    ]
    assert snapshot["outputs"]["summarizer"]["text"] == "They dance."
    assert "edge:fire researcher->summarizer" in log.brief()


async def test_the_article_flow_runs_branches_together_and_loops_until_the_editor_agrees() -> None:
    reviews = iter(["Shorter, please.", "APPROVED"])

    def answer(prompt: str) -> str:
        if prompt.startswith("Answer APPROVED"):
            return next(reviews)
        return "A picture." if prompt.startswith("Describe") else f"An article{' again' * ('Shorter' in prompt)}."

    registry = default_registry(default_model=answering(answer))
    log, snapshot = await run(FLOWS / "article-flow.yaml", {"message": "bees", "chatId": "c"}, registry=registry)
    brief = log.brief()
    assert brief.index("node:start illustrator.1") < brief.index("node:complete writer.1"), "both at the same time"
    assert [line for line in brief if line.startswith(("node:start", "loop", "flow:complete"))] == [
        "node:start writer.1",
        "node:start illustrator.1",
        "node:start editor.1",
        "loop:iterate 1",
        "node:start writer.2",
        "node:start editor.2",
        "flow:complete complete",
    ]
    assert (snapshot["outputs"]["writer"]["text"], snapshot["loopCounters"]["revise"]) == ("An article again.", 1)


def result(value: Any) -> list[dict[int, DeltaToolCall]]:
    """Return how a model gives a structured output: as the call of a tool."""
    return [call("final_result", json.dumps(value))]


OF_THE_AGENT_LOOP = {
    "planner": {"flow.input.feature"},
    "coder": {
        *("task.id", "task.title", "task.description"),
        *("state.reviewFeedback.passed", "state.reviewFeedback.feedback", "state.reviewFeedback.issues"),
    },
    "reviewer": {"task.id", "task.title", "task.description", "coder.text"},
}
"""What the nodes of Open Harness's own agent loop read (apps/horizon-agent/flows/agent-loop.yaml)."""
ADDED = {
    "planner": set(),
    "coder": {"reviewer.structuredOutput.feedback"},
    "reviewer": {"coder.iterations.output.text"},
}
TASKS = [{"id": f"t{number}", "title": "T", "description": f"part {number}"} for number in (1, 2)]


def test_the_feature_flow_has_the_nodes_the_loop_and_the_bindings_of_the_agent_loop() -> None:
    described = load_flow(FLOWS / "feature-flow.yaml")
    assert {node.id: {*expressions_in(node.input)} for node in described.nodes} == {
        name: read | ADDED[name] for name, read in OF_THE_AGENT_LOOP.items()
    }
    assert [(each.from_, each.to, each.when, each.max_iterations) for each in described.edges] == [
        ("planner", "coder", None, None),
        ("coder", "reviewer", None, None),
        ("reviewer", "coder", "$not(reviewer.structuredOutput.passed = true)", 5),
    ]
    (first, *_) = described.edges
    assert first.for_each is not None
    assert (first.for_each.in_, first.for_each.as_) == ("{{ planner.structuredOutput.tasks }}", "task")


async def test_the_feature_flow_plans_codes_each_task_and_repeats_until_the_reviewer_agrees() -> None:
    script = Script(
        result({"tasks": TASKS}),
        ["one"],
        ["two"],
        result({"passed": False, "feedback": "Shorter."}),
        ["1"],
        ["2"],
        result({"passed": True}),
    )
    log, snapshot = await run(FLOWS / "feature-flow.yaml", {"feature": "login"}, registry=script.registry)
    assert log.brief()[-1] == "flow:complete complete"
    assert [line for line in log.brief() if line.startswith(("node:start", "loop"))] == [
        "node:start planner.1",
        "node:start coder.1",
        "node:start coder.2",
        "node:start reviewer.1",
        "loop:iterate 1",
        "node:start coder.3",
        "node:start coder.4",
        "node:start reviewer.2",
    ]
    assert snapshot["outputs"]["planner"]["structuredOutput"] == {"tasks": TASKS}
    assert snapshot["outputs"]["reviewer"]["structuredOutput"] == {"passed": True}
    prompts = [" ".join(str(request[-1][1]).split()) for request in script.requests]
    assert prompts[0].endswith("have to be done: login")
    assert prompts[1].startswith("Do task t1, T: part 1 Earlier review")
    assert prompts[3].endswith('["one","two"]')
    assert "feedback: Shorter. issues:" in prompts[4]


async def test_the_coder_of_the_feature_flow_reads_an_earlier_review_from_the_state() -> None:
    review = {"passed": False, "feedback": "Too long.", "issues": ["names"]}
    described = yaml.safe_load((FLOWS / "feature-flow.yaml").read_text(encoding="utf-8"))
    described["state"]["initial"]["reviewFeedback"] = review
    for node in described["nodes"]:
        node["input"].get("options", {}).pop("outputSchemaFile", None)
    described["nodes"][0]["input"]["output"] = {"schema": {"type": "object"}}
    script = Script(result({"tasks": TASKS[:1]}), ["one"], ["fine"])
    described["edges"].pop()
    await run(described, {"feature": "login"}, registry=script.registry)
    assert 'passed: false feedback: Too long. issues: ["names"]' in " ".join(str(script.requests[1][-1][1]).split())
