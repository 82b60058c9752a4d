"""A wheel of the usechat that runs: for projects that cannot get this usechat from an index.

A wheel is a zip file of the files of a distribution. All of them are on this machine, also if usechat was installed
from a checkout without being copied: then the documentation is beside the package instead of in it.
"""

import base64
import hashlib
import io
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from importlib.resources import files
from pathlib import Path
from typing import Final

from usechat.documentation import page_files

__all__ = ["is_from_an_index", "wheel"]

_METADATA: Final = ("METADATA", "WHEEL", "entry_points.txt", "licenses/LICENSE")
_EPOCH: Final = (2020, 1, 1, 0, 0, 0)
"""The date of every file: the same usechat makes the same wheel."""


def is_from_an_index() -> bool:
    """Tell whether an installer found this usechat in an index (PEP 610: otherwise it notes the address)."""
    return distribution("usechat").read_text("direct_url.json") is None


def wheel() -> tuple[str, bytes]:
    """Return the name and the bytes of a wheel of this usechat."""
    metadata = distribution("usechat")
    entries = dict(_entries(metadata))
    directory = f"usechat-{metadata.version}.dist-info"
    lines = [f"{path},sha256={_digest(content)},{len(content)}" for path, content in entries.items()]
    entries[f"{directory}/RECORD"] = "\n".join([*lines, f"{directory}/RECORD,,", ""]).encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in entries.items():
            archive.writestr(zipfile.ZipInfo(path, _EPOCH), content, zipfile.ZIP_DEFLATED)
    return f"usechat-{metadata.version}-py3-none-any.whl", buffer.getvalue()


def _entries(metadata: Distribution) -> Iterator[tuple[str, bytes]]:
    """Yield the files of the distribution with their paths."""
    package = Path(str(files("usechat")))
    modules = [package.with_name(name) for name in ("pytest_usechat.py", "usechat_program.py")]
    for path in sorted([*modules, *package.rglob("*")]):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path.relative_to(package.parent).as_posix(), path.read_bytes()
    if not (package / "docs").is_dir():
        for name, page in page_files().items():
            yield f"usechat/docs/{name}", page.read_bytes()
    for name in _METADATA:
        if (text := metadata.read_text(name)) is not None:
            yield f"usechat-{metadata.version}.dist-info/{name}", text.encode()


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
