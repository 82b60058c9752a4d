"""The certificate authorities that HTTPS endpoints are verified with.

A client of httpx2 that is made without them loads them itself. That takes about 70 ms, in which the event loop serves
nobody; so they are loaded once per process.
"""

import functools
import ssl

__all__ = ["verification"]


def verification(verify: ssl.SSLContext | bool = True) -> ssl.SSLContext | bool:
    """Return what to pass to an HTTP client as ``verify``: ``True`` becomes the authorities that httpx2 trusts."""
    return _authorities() if verify is True else verify


@functools.cache
def _authorities() -> ssl.SSLContext:
    import httpx2

    return httpx2.create_ssl_context()
