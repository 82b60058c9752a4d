"""Names processes, so that a later one can tell whether a run's process is still alive."""

import os
import socket
import threading
import time
from functools import cache
from pathlib import Path

__all__ = ["is_alive", "new_start", "this_process"]

_latest_start = 0
_starting = threading.Lock()


@cache
def _name(pid: int) -> str:
    return "/".join([socket.gethostname(), str(pid), _started(pid)])


def this_process() -> str:
    """Return the name of this process: its host, its id, and when it started, because ids are used again."""
    return _name(os.getpid())


def is_alive(name: str) -> bool:
    """Return whether a process runs. A process of another host cannot be asked: it counts as alive."""
    host, _, rest = name.partition("/")
    pid, _, started = rest.partition("/")
    if host != socket.gethostname() or not pid.isdecimal():
        return bool(name)
    try:
        os.kill(int(pid), 0)  # sends nothing; it fails if there is no such process
    except PermissionError:  # it is another user's
        return _started(int(pid)) == started
    except OSError:
        return False
    return _started(int(pid)) == started


def new_start() -> int:
    """Return when a run starts, in nanoseconds; later than every run before it, even if the clock says the same."""
    global _latest_start  # noqa: PLW0603 (the order of all runs of this process)
    with _starting:
        _latest_start = max(time.time_ns(), _latest_start + 1)
        return _latest_start


def _started(pid: int) -> str:
    """Return when a process started, in ticks; empty where the system does not say."""
    try:
        # proc(5): the second field may hold spaces and is in brackets; the start is the 22nd.
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
