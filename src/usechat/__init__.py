"""The Python side of useChat."""

__version__ = "0.1.0"
