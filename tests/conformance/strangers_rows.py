"""The agents in `strangers/`: what their model answers, what a person says, and what the page shows then."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from usechat.testing import ModelAnswer, ModelCall

Said: TypeAlias = ModelAnswer | str
FAILS: Final = ["An error occurred."]
REFUSAL: Final = ModelAnswer(text="I cannot help with that.", is_refused=True)
ROME: Final = {"city": "Rome"}
CITY: Final = {"name": "Paris"}
HANDED_OVER: Final = (
    "Agent bob is now handling the request due to the following reason: He knows..\n"
    "Please continue with the current request."
)
"""What the tool of LlamaIndex says that hands over."""
NOTE: Final = {"file_name": "cats.txt"}


def call(tool: str, /, **arguments: object) -> ModelAnswer:
    return ModelAnswer(calls=[ModelCall(tool, arguments)])


@dataclass(frozen=True)
class Stranger:
    """An agent, by the name of its object. ``turns`` are what is said and what the answer shows."""

    name: str
    model: Sequence[Said]
    turns: Sequence[tuple[str, Sequence[object]]]
    output: object = None
    """What the page answers to a call that waits for it, and then posts by itself."""
    edited: object = None
    """The input with which a person approves a call, if it is not the one that was asked about."""
    requests: Sequence[int] = field(default=())
    """How many messages the model was sent in each request, where that shows what is remembered."""

    in_order: bool = True
    """Whether the parts of an answer come in this order: not those of agents that run at once."""

    @property
    def release(self) -> int:
        """Whose turn it is: the newest releases with approvals read one agent each."""
        return sum(map(ord, self.name))


def plain(name: str, *shown: object) -> Stranger:
    """Return an agent that answers twice, and knows its first answer in the second turn."""
    return Stranger(name, ["One.", "Two."], [("Hi", [*shown, "One."]), ("Again", [*shown, "Two."])])


LANGGRAPH: Final = [
    plain("context_defaults"),
    plain("make_graph"),
    Stranger(
        "opened_graph",
        [call("weather", city="Paris"), "Sunny."],
        [("Hi", ["sunny in Paris", "Sunny."])],
    ),
    Stranger(
        "handoff",
        [call("to_expert"), "I know."],
        [("Hi", ["[clerk]", "Handed over.", "[expert]", "I know."])],
    ),
    Stranger("structured", ['{"name": "Paris"}'], [("Where?", ['{"name": "Paris"}', CITY])]),
    Stranger("mcp_blocks", [call("blocks", city="Paris"), "Sunny."], [("Hi", ["sunny in Paris", "Sunny."])]),
    Stranger("approval", [call("weather", city="Paris"), "Sunny."], [("Hi", ["sunny in Paris", "Sunny."])]),
    Stranger("editing", [call("weather", city="Paris"), "Sunny."], [("Hi", ["sunny in Rome", "Sunny."])], edited=ROME),
    Stranger("question", [], [("Hi", [{"question": "Sure?"}, "Yes.", "You said Yes.."])], output="Yes."),
    Stranger("custom_data", ["Done."], [("Hi", [{"progress": 50}, "Done."])]),
    Stranger("subgraph", ["Done."], [("Hi", [{"progress": 50}, "[inner]", "Done."])]),
    Stranger("fan_out", ["One.", "One."], [("Hi", ["One.", "One."])]),
]
PYDANTIC_AI: Final = [
    Stranger("structured", [call("final_result", name="Paris")], [("Where?", ["Final result processed.", CITY])]),
    Stranger("text_or_city", ["Paris.", REFUSAL], [("Where?", ["Paris."]), ("Help", ["I cannot help with that."])]),
    Stranger("validated", ["No.", "Not at all."], [("Hi", ["No.", "Not at all."])]),
    plain("with_deps"),
    Stranger(
        "delegating",
        [call("ask_clerk", question="When?"), "Noon.", "At noon."],
        [("When?", ["Noon.", "At noon."])],
    ),
    Stranger(
        "toolset",
        [call("weather", city="Nowhere"), call("weather", city="Paris"), "Sunny."],
        [("Hi", ["The tool failed.", "sunny in Paris", "Sunny."])],
    ),
    Stranger("failing", [call("broken")], [("Hi", FAILS)]),
]
OPENAI_AGENTS: Final = [
    Stranger(
        "triage",
        [call("transfer_to_spanish"), "Hola.", "Otra vez."],
        [("Hola", [{"assistant": "spanish"}, "[spanish]", "Hola."]), ("Again", ["[spanish]", "Otra vez."])],
    ),
    Stranger(
        "paying",
        ["Hello.", call("pay", amount=3), "Paid."],
        [("Hi", ["Hello."]), ("Pay", ["paid 3", "Paid."])],
    ),
    Stranger("structured", ['{"name": "Paris"}'], [("Where?", ['{"name": "Paris"}', CITY])]),
    Stranger("guarded", ["Hello."], [("Hi", ["Hello."]), ("Do my homework", FAILS)]),
    Stranger(
        "manager",
        [call("translate", input="Hi"), "Hola.", "It is Hola."],
        [("Translate", ["Hola.", "It is Hola."])],
    ),
    Stranger("failing", [call("broken"), "It failed."], [("Hi", ["The tool failed.", "It failed."])]),
    Stranger("dynamic", [call("weather", city="Paris"), "Sunny."], [("Hi", ["sunny in Paris", "Sunny."])]),
    plain("per_person"),
    Stranger("per_person", [REFUSAL], [("Help", ["I cannot help with that."])]),
]
AGNO: Final = [
    plain("agno_guarded"),
    Stranger("agno_structured", ['{"name": "Paris"}'], [("Where?", [CITY])]),
    Stranger("agno_paying", [call("pay", amount=3), "Paid."], [("Pay", ["paid 3", "Paid."])]),
    plain("agno_remembering"),
    Stranger(
        "coordinating",
        [call("delegate_task_to_member", member_id="ann", task="Look."), "I see.", "She sees."],
        [("Hi", ["I see.", "[ann]", "I see.", "She sees."])],
    ),
    Stranger(
        "routing",
        [call("delegate_task_to_member", member_id="ann", task="Look."), "I see."],
        [("Hi", ["I see.", "[ann]", "I see."])],
    ),
    Stranger(
        "broadcasting",
        [call("delegate_task_to_members", task="Look."), "I see.", "I see.", "They see."],
        [("Hi", ["I see.I see.", "[ann]", "[bob]", "I see.", "I see.", "They see."])],
        in_order=False,
    ),
    Stranger(
        "planning",
        [call("mark_all_complete", summary="Done."), "All done."],
        [("Hi", ["Goal marked as complete. Summary: Done.", "All done."])],
    ),
    Stranger(
        "steps",
        [call("weather", city="Paris"), "Sunny.", "Rain."],
        [("Hi", ["[ann]", "sunny in Paris", "Sunny.", "Sunny.!"]), ("Again", ["[ann]", "Rain.", "Rain.!"])],
        requests=[1, 3, 3],
    ),
    Stranger("parallel", ["One.", "One."], [("Hi", ["[ann]", "[bob]", "One.", "One."])], in_order=False),
    Stranger(
        "branches",
        ["1", "2", "3", "4"],
        [("Hi", ["[checked]", "1", "[again]", "2", "[again]", "3", "[routed]", "4"])],
    ),
    Stranger("writing", ["One."], [("Hi", ["[writer]", "One."])]),
    Stranger("function_workflow", [], [("Hi", ["You said Hi."])]),
    Stranger("failing_workflow", [ModelAnswer(error="the password is hunter2", status=403)], [("Hi", FAILS)]),
]
STRANDS: Final = [
    Stranger("strands_plain", [call("clock"), "Noon.", "Two."], [("Hi", ["noon", "Noon."]), ("Again", ["Two."])]),
    plain("strands_factory"),
    Stranger(
        "swarm",
        [call("handoff_to_agent", agent_name="bob", message="Do it."), "Over to bob.", "Done.", "Again."],
        [
            ("Hi", ["[ann]", "Handing off to bob: Do it.", "Over to bob.", "[bob]", "Done."]),
            ("Hi", ["[ann]", "Again."]),
        ],
        requests=[1, 3, 1, 3],
    ),
    Stranger(
        "paying_swarm",
        [ModelAnswer(calls=[ModelCall("pay", {"amount": 3}), ModelCall("clock")]), "Paid."],
        [("Pay", ["[bank]", "paid 3", "noon", "Paid."])],
    ),
    Stranger(
        "chain",
        ["One.", "Two.", "Three.", "Four."],
        [("Hi", ["[ann]", "One.", "[bob]", "Two."]), ("Again", ["[ann]", "Three.", "[bob]", "Four."])],
        requests=[1, 1, 3, 3],
    ),
    Stranger("both", ["One.", "One."], [("Hi", ["[ann]", "[bob]", "One.", "One."])], in_order=False),
    Stranger("nested", ["One."], [("Hi", ["[bob]", "One.", "[check]", "Checked."])]),
]
OTHERS: Final = [
    Stranger("saving", [call("save", text="Hi"), "Saved."], [("Hi", ["version 0", "Saved."])]),
    Stranger("sequence", ["One.", "Two."], [("Hi", ["[ann]", "One.", "[bob]", "Two."])]),
    Stranger("at_once", ["One.", "One."], [("Hi", ["[ann]", "[bob]", "One.", "One."])], in_order=False),
    Stranger("loop", ["One.", call("exit_loop")], [("Hi", ["[ann]", "One.", None])]),
    Stranger(
        "transferring",
        [call("transfer_to_agent", agent_name="expert"), "I know."],
        [("Hi", [None, "[expert]", "I know."])],
    ),
    Stranger("adk_structured", ['{"name": "Paris"}'], [("Where?", ['{"name": "Paris"}', CITY])]),
    Stranger(
        "calling",
        [call("final_answer", answer="One."), call("final_answer", answer="Two.")],
        [("Hi", ["One."]), ("Again", ["Two."])],
    ),
    Stranger("coding", ["<code>\nfinal_answer(1 + 1)\n</code>"], [("Hi", [None, "2"])]),
    plain("haystack_agent"),
    plain("microsoft"),
    Stranger("microsoft_workflow", ["One.", "Two."], [("Hi", ["One.", "Two."])]),
    Stranger("predict", ["[[ ## answer ## ]]\nOne.\n\n[[ ## completed ## ]]"], [("Hi", ["One."])]),
]
LLAMA_INDEX: Final = [
    Stranger("function_agent", [call("weather", city="Paris"), "Sunny."], [("Hi", ["sunny in Paris", "Sunny."])]),
    Stranger(
        "handing_over",
        [call("handoff", to_agent="bob", reason="He knows."), "I know."],
        [("Hi", [HANDED_OVER, "[bob]", "I know."])],
    ),
    Stranger("own_workflow", [], [("Hi", ["Hi!"])]),
    plain("chat_engine"),
    Stranger("context_engine", ["Cats purr."], [("Hi", ["Cats purr.", NOTE])]),
    Stranger(
        "condensing_engine",
        ["One.", "Do cats purr?", "Two."],
        [("Hi", ["One.", NOTE]), ("Again", ["Two.", NOTE])],
    ),
]
CREWAI: Final = [
    plain("clerk"),
    plain("plain_crew"),
    plain("Helpers"),
    plain("helpers"),
    Stranger("Echo", [], [("Hi", ["Hi!"])]),
]

FILES: Final = {
    "dev": {
        "langgraph_agents": LANGGRAPH,
        "pydantic_ai_agents": PYDANTIC_AI,
        "openai_agents_agents": OPENAI_AGENTS,
    },
    "frameworks": {"agno_agents": AGNO, "strands_agents": STRANDS, "other_agents": OTHERS},
    "llama-index": {"llama_index_agents": LLAMA_INDEX},
    "crewai": {"crewai_agents": CREWAI},
}
"""The agents by the environment of their framework, and by their file."""
