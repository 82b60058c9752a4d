"""Agents of other frameworks as chats: one module per framework.

Each module has the same four things: ``source_of`` (found by type, through an entry point), the sans-I/O adapter of the
framework's events, the conversion of a chat's history to the framework's input, and ``parts`` for code with a loop of
its own. A module imports its framework; ``usechat`` itself imports none of them.
"""
