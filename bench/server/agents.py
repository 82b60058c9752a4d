"""`python -m bench.server.agents`: an agent process that answers what the web process of a benchmark queues."""

from bench.server.contestants import turns
from bench.server.load import Load
from usechat.cli.plan import collect_rarely
from usechat.runs.settings import Settings
from usechat.server.worker import AgentWorker

_CONCURRENCY = 10_000


async def _work() -> None:
    worker = AgentWorker(
        Load("paced").agent,
        turns("paced"),
        version="bench",
        settings=Settings(disconnect="cancel"),
        concurrency=_CONCURRENCY,
    )
    print("ready", flush=True)
    await worker.work(drain=0)


def main() -> None:
    import uvloop

    collect_rarely()
    uvloop.run(_work())


if __name__ == "__main__":
    main()
