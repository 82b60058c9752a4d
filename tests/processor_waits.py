"""How long this process and its children waited for a processor: a limit of time does not count what the load takes.

On a quiet machine the wait is nearly nothing, and the limit is what it says.
"""

from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Final

_PROCESS: Final = Path("/proc/self")


class OwnTime:
    """Seconds since it was made, without those for which a thread was ready to run and had no processor.

    >>> elapsed = OwnTime()
    >>> elapsed.seconds < 1
    True
    """

    def __init__(self) -> None:
        self._began = monotonic()
        self._waits = _waits(_PROCESS)

    @property
    def seconds(self) -> float:
        elapsed = monotonic() - self._began
        # The sum: what is waited for passes from thread to thread, and each of them may wait.
        return elapsed - sum(wait - self._waits.get(thread, 0.0) for thread, wait in _waits(_PROCESS).items())


def _waits(process: Path) -> dict[str, float]:
    """Return the seconds that each thread has waited so far, by its id; Linux counts them."""
    waits: dict[str, float] = {}
    for thread in _threads(process):
        try:
            waits[thread.name] = int((thread / "schedstat").read_text().split()[1]) / 1e9
        except OSError:
            continue  # it has ended meanwhile
    return waits


def _threads(process: Path) -> Iterator[Path]:
    try:
        threads = list((process / "task").iterdir())
        children = {child for thread in threads for child in (thread / "children").read_text().split()}
    except OSError:
        return
    yield from threads
    for child in children:
        yield from _threads(Path("/proc") / child)
