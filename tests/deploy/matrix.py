"""What works behind which proxy, and on which server: the tests run it, and `docs/deploy.md` shows it."""

from collections.abc import Mapping
from typing import Final, NamedTuple

WORKS: Final = "works"
AT_ONCE: Final = "noticed at once"
AT_COMMENT: Final = "noticed at the next comment"

PROXY_CHECKS: Final = ("text", "HTTP/2", "silent tool", "disconnect", "WebSocket", "upload", "address", "sub path")


class Proxy(NamedTuple):
    """A proxy: its program, the language of its block in `docs/deploy.md`, and what to change for a sub path.

    ``limits`` says what happens instead, where a check does not work as the others do.
    """

    program: str
    language: str
    sub_path: tuple[tuple[str, str], ...]
    limits: Mapping[str, str] = {}

    def result(self, check: str) -> str:
        """Return what happens in a check."""
        return self.limits.get(check, AT_ONCE if check == "disconnect" else WORKS)


NO_TLS: Final = "put TLS and HTTP/2 in front of it"

PROXIES: Final[Mapping[str, Proxy]] = {
    "nginx": Proxy(
        "nginx",
        "nginx",
        (("location / {", "location /assistant/ {"), ("http://127.0.0.1:8000;", "http://127.0.0.1:8000/;")),
    ),
    "Apache": Proxy(
        "apache2",
        "apache",
        (('ProxyPass "/"', 'ProxyPass "/assistant/"'),),
        {"disconnect": AT_COMMENT},
    ),
    "haproxy": Proxy(
        "haproxy",
        "haproxy",
        (
            (
                "    http-request set-header X-Forwarded-For %[src]",
                "    http-request set-header X-Forwarded-For %[src]\n    http-request replace-path /assistant(/.*) \\1",
            ),
        ),
    ),
    "Caddy": Proxy(
        "caddy",
        "caddyfile",
        (("reverse_proxy 127.0.0.1:8000", "handle_path /assistant/* {\n        reverse_proxy 127.0.0.1:8000\n    }"),),
    ),
    "Varnish": Proxy(
        "varnishd",
        "vcl",
        (("sub vcl_recv {", 'sub vcl_recv {\n    set req.url = regsub(req.url, "^/assistant", "");'),),
        {"HTTP/2": NO_TLS, "disconnect": AT_COMMENT},
    ),
    "Squid": Proxy(
        "squid",
        "squid",
        (),
        {"HTTP/2": NO_TLS, "sub path": "needs a `url_rewrite_program`"},
    ),
}

SERVER_CHECKS: Final = ("text", "resume", "stop", "disconnect", "WebSocket", "SIGTERM")


class Server(NamedTuple):
    """An ASGI server: the command that serves an app, with a place for the port."""

    command: str
    limits: Mapping[str, str] = {}

    def result(self, check: str) -> str:
        """Return what happens in a check."""
        return self.limits.get(check, WORKS)


SERVERS: Final[Mapping[str, Server]] = {
    "uvicorn": Server("uvicorn my_app:app --port 8000"),
    "hypercorn": Server("hypercorn my_app:app --bind 127.0.0.1:8000"),
    "granian": Server("granian my_app:app --interface asgi --port 8000"),
    "daphne": Server("daphne my_app:app --port 8000"),
    "gunicorn": Server("gunicorn my_app:app --worker-class asgi --bind 127.0.0.1:8000"),
}
