"""Says what the newest published releases of AI SDK 5, 6 and 7 know and our table does not.

Run it with `python -m scripts.newest_releases`.
"""

import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.conformance.published import published_schema
from usechat.protocol.releases import CHUNKS, MAJORS, NEWEST
from usechat.protocol.schema import chunk_fields


def fetch(major: int, directory: Path) -> tuple[str, Path]:
    """Download the newest package of a major; return its version and where it was unpacked."""
    command = ["npm", "pack", f"ai@{major}", "--silent", "--pack-destination", str(directory)]
    archive = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1]
    with tarfile.open(directory / archive) as packed:
        packed.extractall(directory / str(major), filter="data")
    return archive.removeprefix("ai-").removesuffix(".tgz"), directory / str(major) / "package"


def differences(major: int, package: Path) -> Iterator[str]:
    """Yield what the package knows and our newest release of that major does not, and the reverse."""
    published = published_schema(package)
    for chunk_type in sorted({*published, *CHUNKS}):
        ours, theirs = chunk_fields(chunk_type, NEWEST[major]), published.get(chunk_type)
        if ours is None or theirs is None:
            if ours != theirs:
                yield f"{chunk_type}: {'new' if ours is None else 'gone'}"
            continue
        yield from (f"{chunk_type}.{key}: new" for key in sorted(theirs - ours))
        yield from (f"{chunk_type}.{key}: gone" for key in sorted(ours - theirs))


def main() -> int:
    """Compare the three majors and return how many of them differ."""
    differing = 0
    with tempfile.TemporaryDirectory() as directory:
        for major in MAJORS:
            version, package = fetch(major, Path(directory))
            texts = list(differences(major, package))
            result = "; ".join(texts) or "no difference"
            sys.stdout.write(f"ai {version} (our newest: {NEWEST[major]}): {result}\n")
            differing += bool(texts)
    return differing


if __name__ == "__main__":
    sys.exit(main())
