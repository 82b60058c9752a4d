"""TLS to the upstream: certificates of a private authority, and a certificate for this client."""

import ssl

from usechat.errors import UnusableFile

__all__ = ["upstream_tls"]


def upstream_tls(*, ca: str | None = None, certificate: str | None = None, key: str | None = None) -> ssl.SSLContext:
    """Return the TLS settings for calls to the upstream.

    ``ca`` is a PEM file with the authorities that the upstream's certificate is checked against; without it those of
    the system are used. ``certificate`` is a PEM file that this client shows to the upstream, and ``key`` the file of
    its key, if that is not in the same file. Raises :class:`~usechat.errors.UnusableFile` if a file cannot be used.

    >>> from usechat.agent_ops import AgentOpsChatTransport
    >>> transport = AgentOpsChatTransport("wss://agents.example.com/api/sessions/{id}/ws", tls=upstream_tls())
    """
    try:
        context = ssl.create_default_context(cafile=ca)
    except OSError as error:  # also what ssl itself raises
        raise UnusableFile(f"{ca} is not a PEM file of certificates: {error.strerror or error}") from None
    if certificate is not None:
        try:
            context.load_cert_chain(certificate, key)
        except OSError as error:
            files = certificate if key is None else f"{certificate} with the key {key}"
            raise UnusableFile(f"{files} is not a certificate with its key: {error.strerror or error}") from None
    return context
