"""Builds the documentation's site into `build/site`: `make docs`.

The pages in `docs/` and at the root of the repository are written for a code host: their links lead to files. Here they
are gathered into one directory with the links rewritten, beside pages that are made from the code (the reference, the
examples, the decisions). Zensical builds the site from that directory; a warning is an error.

A site holds several versions: each build writes the directory of its version, and `versions.json` lists them all.
"""

import argparse
import json
import posixpath
import re
import shutil
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path

from scripts.generate_docs import ROOT, summary
from usechat import __version__

PUBLIC = (
    "usechat",
    "usechat.parts",
    "usechat.server",
    "usechat.chats",
    "usechat.client",
    "usechat.testing",
    "usechat.check",
    "usechat.errors",
    "usechat.targets",
    "usechat.transports",
    "usechat.ids",
    "usechat.input_mapping",
    "usechat.ui_messages",
    "usechat.values",
    "usechat.database",
    "usechat.documentation",
    "usechat.lazy",
    "usechat.cli",
    "usechat.open_harness",
    "usechat.open_harness.errors",
    "usechat.agent_ops",
    "usechat.agent_ops.errors",
    "usechat.genkit",
    "usechat.temporal",
    "usechat.temporal.openai_agents",
    "usechat.temporal.pydantic_ai",
    "usechat.typescript",
    "usechat.adapters.a2a",
    "usechat.adapters.ag_ui",
    "usechat.adapters.agent_framework",
    "usechat.adapters.agno",
    "usechat.adapters.anthropic",
    "usechat.adapters.claude",
    "usechat.adapters.crewai",
    "usechat.adapters.dspy",
    "usechat.adapters.elicitation",
    "usechat.adapters.google_adk",
    "usechat.adapters.haystack",
    "usechat.adapters.langgraph",
    "usechat.adapters.litellm",
    "usechat.adapters.llama_index",
    "usechat.adapters.openai",
    "usechat.adapters.openai_agents",
    "usechat.adapters.pydantic_ai",
    "usechat.adapters.smolagents",
    "usechat.adapters.strands",
)
"""The modules of the reference, in the order in which a reader meets them."""

MOVED = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "AGENTS.md": "agents.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "bench/README.md": "bench/index.md",
    "docs/decisions": "decisions/index.md",
}
"""Where a file or a directory of the repository stands on the site, if not at its place below `docs/`."""

LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s#]+)(#[^)\s]*)?\)")
FENCE = re.compile(r"(^ *```.*?^ *```)", re.DOTALL | re.MULTILINE)
CHOOSER = re.compile(r"^<!-- generated: chooser -->.*?(?=^<!-- end -->)", re.DOTALL | re.MULTILINE)
NAMED_FENCE = re.compile(r"\A```(\w+) ([\w./-]+)\n")
LANGUAGES = {".py": "python", ".yaml": "yaml", ".json": "json", ".ts": "ts", ".tsx": "tsx", ".jsx": "jsx"}


def place(path: str) -> str:
    """Return where a file of the repository stands on the site."""
    if path in MOVED:
        return MOVED[path]
    if path.startswith("examples"):
        return f"{path}.md" if Path(ROOT, path).is_file() else "examples/index.md"
    return path.removeprefix("docs/")


def on_the_site(text: str, path: str) -> str:
    """Return a page with its links rewritten to where their targets stand on the site; code stays as it is.

    The name of a file after the language of a code block becomes the block's title: the generator reads no bare names.
    """
    here = posixpath.dirname(place(path))

    def rewrite(match: re.Match[str]) -> str:
        if ":" in match[2]:
            return match[0]
        target = place(posixpath.normpath(posixpath.join(posixpath.dirname(path), match[2])))
        return f"{match[1]}{posixpath.relpath(target, here or '.')}{match[3] or ''})"

    pieces = FENCE.split(CHOOSER.sub(lambda match: tabs(match[0]), text))
    pieces[::2] = [LINK.sub(rewrite, piece) for piece in pieces[::2]]
    pieces[1::2] = [NAMED_FENCE.sub(r'```\1 title="\2"\n', piece) for piece in pieces[1::2]]
    return "".join(pieces)


def tabs(text: str) -> str:
    """Return a text with a tab instead of each section of the third level."""
    before, *sections = re.split(r"^### ", text, flags=re.MULTILINE)
    pieces = (section.partition("\n") for section in sections)
    return before + "".join(f'=== "{title}"\n{textwrap.indent(body, "    ")}' for title, _, body in pieces)


def sources() -> list[str]:
    """Return the pages and the files that pages link to, as paths in the repository."""
    paths = [*ROOT.glob("docs/**/*"), *ROOT.glob("bench/results/*"), *ROOT.glob("ops/*")]
    return sorted({str(path.relative_to(ROOT)) for path in paths if path.is_file()} | {*MOVED} - {"docs/decisions"})


def gather(pages: Path) -> None:
    """Write every page of the site into a directory."""
    shutil.rmtree(pages, ignore_errors=True)
    for path in sources():
        target = pages / place(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.suffix == ".md":
            target.write_text(on_the_site((ROOT / path).read_text(encoding="utf-8"), path), encoding="utf-8")
        else:
            shutil.copyfile(ROOT / path, target)
    generated_pages = {
        "reference/index.md": reference_index(),
        "decisions/index.md": decisions(),
        "examples/index.md": examples_index(),
    }
    generated_pages |= {place(path): example(path) for path in examples()}
    generated_pages |= {f"reference/{name}.md": reference(name) for name in PUBLIC}
    for name, lines in generated_pages.items():
        (pages / name).parent.mkdir(parents=True, exist_ok=True)
        (pages / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    shutil.copytree(ROOT / "scripts" / "site" / "assets", pages / "assets", dirs_exist_ok=True)
    mermaid = ROOT / "scripts" / "site" / "node_modules" / "mermaid" / "dist" / "mermaid.min.js"
    shutil.copyfile(mermaid, pages / "assets" / "mermaid.min.js")


def reference_index() -> Iterator[str]:
    """Yield the page that lists the public modules."""
    yield "# Python API"
    yield ""
    yield "What a program may import. Everything else can change in any release."
    yield ""
    for name in PUBLIC:
        yield f"- [`{name}`]({name}.md)"


def reference(name: str) -> Iterator[str]:
    """Yield the page of a public module: each of its names, from the docstrings. Its framework may be absent."""
    yield f"# {name}"
    yield ""
    yield f"::: {name}"
    yield "    options:"
    yield "      members:"
    yield from (f"        - {each}" for each in public_names(name))


def public_names(module: str) -> list[str]:
    """Return the public names of a module, which a test compares with what can be imported."""
    names = (ROOT / "tests" / "public_names.txt").read_text(encoding="utf-8").split()
    return [name.rpartition(".")[2] for name in names if name.rpartition(".")[0] == module]


def decisions() -> Iterator[str]:
    """Yield the list of the decisions."""
    yield "# Decisions"
    yield ""
    yield "Why things are as they are. A decision that was changed says so."
    yield ""
    for path in sorted((ROOT / "docs" / "decisions").glob("*.md")):
        title = path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# 0123456789.")  # the list has numbers
        yield f"1. [{title}]({path.name})"


def examples() -> list[str]:
    """Return the files in `examples/` that a reader opens: those with a sentence that says what they are."""
    command = ["git", "ls-files", "examples"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    return [path for path in listed if Path(path).name != "__init__.py" and sentence_of(path)]


def sentence_of(path: str) -> str:
    """Return the first sentence of an example: of its docstring, or of its first comment."""
    if path.endswith(".py"):
        return summary(ROOT / path)
    text = (ROOT / path).read_text(encoding="utf-8")
    comment = re.match(r"(?:# .*\n)+", text) or re.search(r"/\*\* .*? \*/", text)
    if Path(path).suffix not in LANGUAGES or comment is None:
        return ""
    words = " ".join(line.strip("/*# ") for line in comment[0].splitlines())
    return re.split(r"(?<=[.])\s+(?=[A-Z`])", words)[0]


def examples_index() -> Iterator[str]:
    """Yield the list of the examples, a sentence each."""
    yield "# Examples"
    yield ""
    yield "The tests run each of these files."
    paths = examples()
    for folder in sorted({posixpath.dirname(path) for path in paths}):
        yield ""
        yield f"## {folder}"
        yield ""
        for path in (each for each in paths if posixpath.dirname(each) == folder):
            yield f"- [`{Path(path).name}`]({posixpath.relpath(place(path), 'examples')}): {sentence_of(path)}"


def example(path: str) -> Iterator[str]:
    """Yield the page of an example."""
    yield f"# `{path}`"
    yield ""
    yield f"````{LANGUAGES[Path(path).suffix]}"
    yield (ROOT / path).read_text(encoding="utf-8").strip()
    yield "````"


def llms() -> Iterator[str]:
    """Yield the index for language models (llmstxt.org): the guides by section, a sentence each."""
    yield "# usechat"
    yield ""
    yield "> The Python side of useChat: connect any Python agent to a Vercel AI SDK front end."
    yield ""
    yield "All guides in one file: [llms-full.txt](llms-full.txt)"
    for section, paths in guides().items():
        yield ""
        yield f"## {section}"
        yield ""
        for path in paths:
            title, _, text = Path(ROOT, path).read_text(encoding="utf-8").partition("\n")
            yield f"- [{title.lstrip('# ')}]({place(path).removesuffix('.md')}.html): {first_sentence(text)}"


def llms_full() -> Iterator[str]:
    """Yield the text of all guides, for language models."""
    for paths in guides().values():
        yield from (Path(ROOT, path).read_text(encoding="utf-8") for path in paths)


def guides() -> dict[str, list[str]]:
    """Return the guides by section, in the order of the site."""
    navigation = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]["nav"]
    sections = {title: entries for section in navigation for title, entries in section.items() if title != "Project"}
    pages = {title: [each for each in entries if isinstance(each, str)] for title, entries in sections.items()}
    return {
        title: [f"docs/{name}" for name in names if Path(ROOT, "docs", name).is_file()]
        for title, names in pages.items()
    }


def first_sentence(text: str) -> str:
    """Return the first sentence of a page below its title, without its links."""
    paragraph = next(each for each in text.split("\n\n") if re.match(r"\s*[A-Z`]", each))
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(paragraph.split()))
    return re.split(r"(?<=[.:])\s+(?=[A-Z`])", words)[0].removesuffix(":")


def without_unused_script(page: str) -> str:
    """Return a page without the script that draws diagrams (5 MB) if it has none."""
    return page if 'class="mermaid"' in page else re.sub(r'<script src="[^"]*/mermaid\.min\.js"></script>', "", page)


def build(site: Path) -> None:
    """Build the site of this version, and the page and the list beside it that lead to all versions."""
    gather(ROOT / "build" / "pages")
    output = ROOT / "build" / "site"
    shutil.rmtree(output, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "zensical", "build", "--clean", "--strict"], cwd=ROOT, check=True)
    for page in output.rglob("*.html"):
        page.write_text(without_unused_script(page.read_text(encoding="utf-8")), encoding="utf-8")
    for name, lines in {"llms.txt": llms(), "llms-full.txt": llms_full()}.items():
        (output / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    target = site / __version__
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(output, target)
    versions = sorted((path.name for path in site.iterdir() if (path / "index.html").is_file()), reverse=True)
    listed = [{"version": each, "title": each, "aliases": []} for each in versions]
    (site / "versions.json").write_text(json.dumps(listed, indent=2) + "\n", encoding="utf-8")
    (site / "index.html").write_text(
        f'<!doctype html><meta charset="utf-8"><title>usechat</title>'
        f'<meta http-equiv="refresh" content="0; url={__version__}/index.html">\n',
        encoding="utf-8",
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--into", type=Path, default=ROOT / "build" / "docs", help="the directory of all versions")
    options = parser.parse_args()
    options.into.mkdir(parents=True, exist_ok=True)
    build(options.into)
