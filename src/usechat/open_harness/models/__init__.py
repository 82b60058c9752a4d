"""The models behind agent nodes: the provider protocol, pydantic-ai, and recordings."""
