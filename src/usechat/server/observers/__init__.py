"""Metrics, traces and log lines: everything that watches a server and changes nothing."""
