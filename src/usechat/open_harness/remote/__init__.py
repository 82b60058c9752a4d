"""Flows that run in another process: clients of its WebSocket and HTTP servers, and such a server."""
