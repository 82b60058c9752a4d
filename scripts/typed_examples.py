"""Write the examples of `docs/client.md` as Python files, so that `make check` can check their types."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "client.md"


def write_examples(directory: Path) -> None:
    """Write one file per block of Python; the directory is emptied first."""
    directory.mkdir(parents=True, exist_ok=True)
    for path in directory.glob("*.py"):
        path.unlink()
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    for number, block in enumerate(blocks, start=1):
        (directory / f"client_example_{number}.py").write_text(block, encoding="utf-8")


if __name__ == "__main__":
    write_examples(Path(sys.argv[1]))
