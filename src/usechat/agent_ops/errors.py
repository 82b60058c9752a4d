"""The errors of agent sessions, in one tree; :mod:`usechat.errors` has the others.

UsechatError
├── RequestError
│   └── AccessUnknown         503: the session directory does not answer
├── InvalidSetting
│   └── UnknownAccess         a text that names no ``--access`` rule
├── CannotStart
│   └── UnusableDirectory     a session database that cannot be used
├── SessionUnreachable        a session's socket could not be opened
├── SessionClosed             a session's socket was closed
└── TooManySockets            a session has as many sockets as it may
"""

from usechat.errors import CannotStart, InvalidSetting, RequestError, UsechatError

__all__ = [
    "AccessUnknown",
    "SessionClosed",
    "SessionUnreachable",
    "TooManySockets",
    "UnknownAccess",
    "UnusableDirectory",
]


class AccessUnknown(RequestError):
    """503: the session directory does not answer, so that nobody's role is known and every request is refused.

    An ``AccessRule`` raises it.
    """

    status = 503


class UnknownAccess(InvalidSetting):
    """A text that names no ``--access`` rule. The text lists the rules."""


class UnusableDirectory(CannotStart):
    """The session database cannot be used, or its tables are old. The text never repeats a password.

    ``usechat sessions migrate`` upgrades the tables.
    """


class SessionUnreachable(UsechatError):
    """The socket of an agent session could not be opened. The page shows a ``PublicError`` without the cause."""


class SessionClosed(UsechatError):
    """The agent session closed its socket. If the turn was not complete, its answer ends with an error."""


class TooManySockets(UsechatError):
    """An agent session has ``maximum_sockets`` upstream sockets already. The page shows a ``PublicError``."""
