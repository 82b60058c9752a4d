"""The program `usechat`: a module of its own, since importing anything of usechat would import usechat.

The imports take most of the first tenths of a second. An interrupt (Ctrl-C) in that time ends the process as it ends
any other program, without a traceback; then `usechat.cli.main` handles it.
"""

import signal


def main() -> int:
    """Run the command line; return its exit code."""
    handler = signal.signal(signal.SIGINT, signal.SIG_DFL)
    from usechat.cli import main as run

    signal.signal(signal.SIGINT, handler)
    return run()
