"""Metrics, traces and logs: everything that observes a server and changes nothing."""
