"""Which tests are collected: those of frameworks that are installed. The group `adapters` has all of them."""

from importlib.util import find_spec

_NEEDS = {
    "mcp": ["test_elicitation.py", "test_mcp_app_requests.py", "test_mcp_apps.py"],
    "agents": [
        "test_openai_agents.py",
        "test_openai_agents_pauses.py",
        "test_openai_agents_storing.py",
        "test_bench_frameworks.py",
        "test_examples.py",
        "test_half_emojis.py",
        "test_outputs.py",
        "test_refusals.py",
        "test_round_trips.py",
        "test_round_trips_back.py",
        "test_sub_agent_history.py",
        "test_telemetry.py",
        "test_types.py",
    ],
    "langgraph": [
        "test_langgraph.py",
        "test_langgraph_meetings.py",
        "test_langgraph_memory.py",
        "test_bench_frameworks.py",
        "test_examples.py",
        "test_half_emojis.py",
        "test_outputs.py",
        "test_round_trips.py",
        "test_round_trips_back.py",
        "test_telemetry.py",
        "test_types.py",
    ],
}

collect_ignore = [name for package, names in _NEEDS.items() if find_spec(package) is None for name in names]
