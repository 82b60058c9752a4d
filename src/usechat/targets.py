"""The interface for packages that add a kind of target: ``usechat serve --as KIND``.

A *kind* is something behind a file or an address that can answer a chat: a flow file, a session behind a WebSocket.
It is found through the entry-point group ``usechat.targets``; the name of the entry point is what ``--as`` takes, and
its object a class without arguments that follows :class:`Target`:

.. code-block:: toml

    [project.entry-points."usechat.targets"]
    parrot = "parrots.target:ParrotTarget"

:class:`Target` shows such a class. It is loaded for `usechat serve --help`, so its module imports nothing heavy. If a
package is missing that ``open`` needs, it raises :class:`~usechat.errors.MissingDependency`, whose text says how to
install it.
"""

from usechat.cli.targets import (
    CommonOptions,
    NoOptions,
    OptionGroup,
    ServedAnswer,
    ServedApp,
    Target,
    load_object,
)

__all__ = [
    "CommonOptions",
    "NoOptions",
    "OptionGroup",
    "ServedAnswer",
    "ServedApp",
    "Target",
    "load_object",
]
