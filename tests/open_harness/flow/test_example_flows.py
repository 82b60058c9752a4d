"""The flows in `examples/flows`, with models that follow a script."""

from tests.open_harness.flow_runs import FLOWS, run
from tests.open_harness.scripted_models import Script, answering
from usechat.open_harness.nodes.builtin import default_registry


async def test_the_chat_flow_answers_the_message() -> None:
    script = Script(["Good ", "day."])
    heard, snapshot = await run(FLOWS / "chat-flow.yaml", {"message": "Hello"}, registry=script.registry)
    assert script.asked == [[("user-prompt", "Hello")]]
    assert snapshot["outputs"]["assistant"]["text"] == "Good day."
    assert heard.brief() == [
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
    heard, snapshot = await run(FLOWS / "research-flow.yaml", {"topic": "bees"}, registry=script.registry)
    assert script.asked == [
        [("user-prompt", "Research: bees")],
        [("user-prompt", "Summarize: Bees dance.")],
    ]
    assert snapshot["outputs"]["summarizer"]["text"] == "They dance."
    assert "edge:fire researcher->summarizer" in heard.brief()


async def test_the_article_flow_runs_branches_together_and_loops_until_the_editor_agrees() -> None:
    reviews = iter(["Shorter, please.", "APPROVED"])

    def answer(prompt: str) -> str:
        if prompt.startswith("Answer APPROVED"):
            return next(reviews)
        return "A picture." if prompt.startswith("Describe") else f"An article{' again' * ('Shorter' in prompt)}."

    registry = default_registry(default_model=answering(answer))
    heard, snapshot = await run(FLOWS / "article-flow.yaml", {"message": "bees", "chatId": "c"}, registry=registry)
    brief = heard.brief()
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
