"""Runs: one assistant turn each, owned by one task, read by anyone who may."""
