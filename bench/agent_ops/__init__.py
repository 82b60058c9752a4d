"""The latency that the gateway adds to a session's own WebSocket."""
