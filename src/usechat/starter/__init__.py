"""Projects to start from: a chat with tests, sign-in and a container, for a framework and a page of choice."""
