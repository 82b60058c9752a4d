"""Workflows of Temporal that answer chats.

:class:`TemporalSource` answers turns with a workflow, in a web process. :class:`WorkflowAnswer`, :func:`publish`,
:func:`turn_of` and :func:`worker_plugin` are for the worker. ``docs/temporal.md`` has the rest.
"""

from typing import TYPE_CHECKING, Final

from usechat.lazy import lazy_names

if TYPE_CHECKING:
    from usechat.temporal.source import TemporalSource
    from usechat.temporal.workflows import WorkflowAnswer, publish, turn_of, worker_plugin

__all__ = ["TemporalSource", "WorkflowAnswer", "publish", "turn_of", "worker_plugin"]

# Imported on use: `usechat serve --help` loads the kind in this package, which must be fast.
_WORKER: Final = "usechat.temporal.workflows"
_HOMES: Final = dict.fromkeys(__all__, _WORKER) | {"TemporalSource": "usechat.temporal.source"}

__getattr__ = lazy_names(__name__, _HOMES)
