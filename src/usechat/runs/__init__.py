"""Runs: one assistant turn each, owned by one task, read by any number of clients."""
