"""A small agent session behind a WebSocket, to try the gateway with: it does what the prompt's first words say."""
