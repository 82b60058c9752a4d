"""Runs a flow in this process: scheduling, retries, state and snapshots."""
