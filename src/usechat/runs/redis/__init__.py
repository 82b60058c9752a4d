"""Runs in Redis Streams, so that every worker can read, resume and stop them."""
