"""The kind `temporal` of `usechat serve`: a workflow for each turn, run by the workers of a Temporal server."""

import re
from typing import Any, Final

import msgspec

from usechat.errors import CannotServe, InvalidAddress
from usechat.targets import CommonOptions, OptionGroup, TargetAgent, load_object

__all__ = ["TemporalOptions", "TemporalTarget"]

_ADDRESS: Final = re.compile(r"[^/@\s]+:\d+")


class TemporalOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the kind; `usechat serve --help` explains them."""

    workflow: str = ""
    task_queue: str = ""


class TemporalTarget:
    """Serves the workflows of a Temporal server.

    Namespace, TLS and API key are read as Temporal's own client reads them: from the environment, such as
    ``TEMPORAL_NAMESPACE``, and from the profile ``TEMPORAL_PROFILE`` of the file ``TEMPORAL_CONFIG_FILE``.
    """

    summary = (
        "a workflow on the Temporal server at HOST:PORT; namespace, TLS and API key come from Temporal's environment"
        " variables and profile file"
    )
    options = TemporalOptions

    def recognises(self, target: str) -> bool:  # noqa: ARG002
        """Return False: an address may be anything."""
        return False

    def add_options(self, group: OptionGroup) -> None:
        """Add which workflow answers, and where its workers look for it."""
        add = group.add_argument
        add("--workflow", metavar="NAME", help="the workflow: MODULE:NAME of its class, or the name of its type")
        add("--task-queue", metavar="NAME", help="the task queue that its workers poll")

    def open(self, target: str, options: TemporalOptions, common: CommonOptions) -> TargetAgent:  # noqa: ARG002
        """Return a source that starts a workflow for each turn."""
        if not _ADDRESS.fullmatch(target):
            raise InvalidAddress(
                f"{target!r} is not the address of a Temporal server; give HOST:PORT, such as 127.0.0.1:7233"
            )
        for flag, value in (("--workflow", options.workflow), ("--task-queue", options.task_queue)):
            if not value:
                raise CannotServe(f"--as temporal needs {flag} NAME")
        from usechat.temporal.source import TemporalSource, connection

        workflow: Any = load_object(options.workflow) if ":" in options.workflow else options.workflow
        return TargetAgent(TemporalSource(connection(target), workflow, task_queue=options.task_queue))
