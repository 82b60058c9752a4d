"""Open Harness: multi-node flows that answer a chat page."""
