"""Requests to the tests' own servers, which speak plain HTTP.

httpx2's functions load the certificate authorities for each call, about 70 ms of processor time; a test that waits for
a server would take the processor from it.
"""

from functools import partial

import httpx2

get = partial(httpx2.get, verify=False)
post = partial(httpx2.post, verify=False)
