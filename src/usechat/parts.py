"""The parts that an agent or an adapter yields: the public name of :mod:`usechat.protocol.parts`."""

from usechat.protocol.parts import *  # noqa: F403
from usechat.protocol.parts import __all__, __doc__  # noqa: A004, F401 (help() explains the fields)
