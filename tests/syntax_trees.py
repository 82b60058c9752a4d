"""Syntax trees of Python files, for tests that look at code: each file is parsed once per process."""

import ast
import functools
import gc
from pathlib import Path


def parse(code: str) -> ast.Module:
    """Parse code with garbage collection off.

    CPython 3.11 counts the depth of the tree in one variable for all parses. A collection in the middle of one may run
    Python code that parses as well, and the count is wrong afterwards: "SystemError: AST constructor recursion depth
    mismatch" (python/cpython#106905).
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(code)
    finally:
        if was_enabled:
            gc.enable()


@functools.cache
def tree_of(path: Path) -> ast.Module:
    """Return the syntax tree of a file. Callers share it: look, but do not change it."""
    return parse(path.read_text(encoding="utf-8"))


@functools.cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """Return all nodes of a file's syntax tree."""
    return tuple(ast.walk(tree_of(path)))
