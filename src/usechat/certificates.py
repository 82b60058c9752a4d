"""The certificate authorities that HTTPS endpoints are verified with.

A client of httpx2 that is made without them loads them itself. That takes about 70 ms, in which the event loop serves
nobody; so they are loaded once per process.
"""

import functools
import ssl

__all__ = ["explain_tls", "verification"]


def verification(verify: ssl.SSLContext | bool = True) -> ssl.SSLContext | bool:
    """Return what to pass to an HTTP client as ``verify``: ``True`` becomes the authorities that httpx2 trusts.

    They are loaded once per process: each client that loads them itself keeps the event loop busy for 70 ms.

    >>> import httpx2
    >>> client = httpx2.AsyncClient(verify=verification())
    """
    return _authorities() if verify is True else verify


def explain_tls(reason: str) -> str:
    """Return why a connection failed; a server that answers TLS with plain HTTP is named in words.

    >>> explain_tls("[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)")
    'the server does not use TLS; write http: instead of https:, or ws: instead of wss:'
    """
    without_tls = "WRONG_VERSION_NUMBER" in reason or "RECORD_LAYER_FAILURE" in reason  # the latter since OpenSSL 3.4
    return (
        "the server does not use TLS; write http: instead of https:, or ws: instead of wss:" if without_tls else reason
    )


@functools.cache
def _authorities() -> ssl.SSLContext:
    import httpx2

    return httpx2.create_ssl_context()
