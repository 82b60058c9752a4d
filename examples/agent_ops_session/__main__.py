"""``python -m examples.agent_ops_session --port 8765``."""

import argparse
import asyncio
import contextlib
from typing import get_args

from examples.agent_ops_session.scripts import SCRIPTS
from examples.agent_ops_session.server import serving
from examples.agent_ops_session.session import Dialect, Release


async def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.agent_ops_session", description=__doc__)
    parser.add_argument("--port", type=int, default=8765)
    parser.add_argument("--dialect", choices=get_args(Dialect), default="client", help="which dialect clients get")
    parser.add_argument("--release", choices=get_args(Release), default="early", help="which upstream it is like")
    options = parser.parse_args()
    async with serving(port=options.port, dialect=options.dialect, release=options.release) as sessions:
        print(f"Sessions: {sessions.url}")
        print(f"Prompts that do something: {', '.join(SCRIPTS)}", flush=True)
        await asyncio.Event().wait()


with contextlib.suppress(KeyboardInterrupt):
    asyncio.run(main())
