"""Which tests are collected: those of frameworks that are installed. The group `adapters` has all of them."""

from importlib.util import find_spec

_NEEDS = {
    "agents": ["test_openai_agents.py", "test_examples.py", "test_round_trips.py"],
    "langgraph": ["test_langgraph.py", "test_langgraph_memory.py", "test_examples.py", "test_round_trips.py"],
}

collect_ignore = [name for package, names in _NEEDS.items() if find_spec(package) is None for name in names]
