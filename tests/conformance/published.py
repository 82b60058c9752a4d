"""The chunk types and keys of an `ai` package, read out of its source text: not every release exports its schema."""

import re
from pathlib import Path


def published_schema(package: Path) -> dict[str, set[str]]:
    """Return the keys of every chunk type; all `data-*` are one type, `data`."""
    files = (package / "dist" / "index.mjs", package / "dist" / "index.js")
    source = next(file for file in files if file.exists()).read_text(encoding="utf-8")
    begin = source.index("uiMessageChunkSchema = ")
    schema: dict[str, set[str]] = {}
    for variant in _variants(source[begin : source.index("function isDataUIMessageChunk", begin)]):
        literal = re.match(r'\s*type: [\w$]+\.literal\("([^"]+)"\)', variant)
        schema[literal[1] if literal else "data"] = _keys(variant) - {"type"}
    return schema


def _variants(source: str) -> list[str]:
    """Return what stands between the braces of each object of the union; an object inside of one belongs to it."""
    variants, depth, start = [], 0, 0
    for match in re.finditer(r"(?:strictObject|looseObject)\(\{|[{}]", source):
        if match[0] == "}":
            depth -= 1
            if depth == 0 and start:
                variants.append(source[start : match.start()])
                start = 0
            continue
        if depth == 0 and match[0] != "{":
            start = match.end()
        depth += 1 if start else 0
    return variants


def _keys(variant: str) -> set[str]:
    flat, depth = "", 0
    for character in variant:
        depth -= character in ")}]"
        flat += character if depth == 0 else ""
        depth += character in "({["
    return set(re.findall(r"(\w+):", flat))
