"""Proxies as real processes on loopback, with the configurations of `docs/deploy.md`."""

import re
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tests.certificate import write_certificate
from tests.deploy.matrix import NO_TLS, PROXIES
from tests.deploy.programs import program
from tests.redis_server import free_port
from tests.server.process import eventually

PAGE: Final = (Path(__file__).parents[2] / "docs" / "deploy.md").read_text(encoding="utf-8")
_UPSTREAM: Final = "127.0.0.1:8000"


class Place(NamedTuple):
    """Where a proxy listens, the certificate that it shows, and where it keeps its files."""

    port: int
    certificate: Path
    directory: Path


class Started(NamedTuple):
    """A command that starts a proxy, and the file with its configuration."""

    command: list[str]
    file: Path
    text: str


class RunningProxy(NamedTuple):
    """A proxy that answers: its URL, and the certificate to trust, if it speaks TLS."""

    url: str
    certificate: Path | None

    @property
    def origin(self) -> str:
        return re.sub(r"(?<=\d)/.*", "", self.url)


def snippet(language: str) -> str:
    """Return the block of the page in this language."""
    match = re.search(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert match is not None, f"docs/deploy.md has no block in {language}"
    return match[1]


def _nginx(text: str, place: Place) -> Started:
    file = place.directory / "nginx.conf"
    paths = " ".join(
        f"{name}_temp_path {place.directory}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    return Started(
        [program("nginx"), "-c", str(file), "-e", f"{place.directory}/error.log"],
        file,
        f"daemon off; master_process off; pid {place.directory}/pid; events {{}}\n"
        f"http {{ access_log off; {paths}\nserver {{ listen 127.0.0.1:{place.port} ssl http2;\n"
        f"ssl_certificate {place.certificate}; ssl_certificate_key {place.certificate};\n{text}\n}} }}\n",
    )


def _apache(text: str, place: Place) -> Started:
    file = place.directory / "apache.conf"
    names = ("mpm_event", "authz_core", "headers", "proxy", "proxy_http", "http2", "ssl", "socache_shmcb")
    modules = "\n".join(f"LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so" for name in names)
    return Started(
        [program("apache2"), "-X", "-f", str(file)],
        file,
        f'{modules}\nServerName 127.0.0.1\nPidFile "{place.directory}/pid"\nErrorLog "{place.directory}/error.log"\n'
        f"User www-data\nGroup www-data\nProtocols h2 http/1.1\nListen 127.0.0.1:{place.port}\n"
        f"<VirtualHost *:{place.port}>\nSSLEngine on\nSSLCertificateFile {place.certificate}\n{text}\n</VirtualHost>\n",
    )


def _haproxy(text: str, place: Place) -> Started:
    file = place.directory / "haproxy.cfg"
    bind = f"bind 127.0.0.1:{place.port} ssl crt {place.certificate} alpn h2,http/1.1"
    return Started([program("haproxy"), "-db", "-f", str(file)], file, re.sub(r"bind .*", bind, text))


def _caddy(text: str, place: Place) -> Started:
    file = place.directory / "Caddyfile"
    site = f"https://127.0.0.1:{place.port} {{\n    tls {place.certificate} {place.certificate}"
    return Started(
        [program("caddy"), "run", "--adapter", "caddyfile", "--config", str(file)],
        file,
        "{\n    admin off\n    auto_https off\n}\n" + text.replace("chat.example.com {", site),
    )


def _varnish(text: str, place: Place) -> Started:
    file = place.directory / "varnish.vcl"
    listen = ["-a", f"127.0.0.1:{place.port}", "-n", str(place.directory / "varnish"), "-s", "malloc,16m"]
    return Started([program("varnishd"), "-j", "none", "-F", *listen, "-f", str(file)], file, text)


def _squid(text: str, place: Place) -> Started:
    file = place.directory / "squid.conf"
    quiet = "pid_filename none\naccess_log none\ncache_log /dev/null\nnetdb_filename none\npinger_enable off\n"
    limits = "max_filedescriptors 1024\nshutdown_lifetime 0 seconds\n"
    return Started(
        [program("squid"), "-N", "-f", str(file)],
        file,
        re.sub(r"http_port \d+", f"http_port 127.0.0.1:{place.port}", text) + quiet + limits,
    )


_STARTS: Final[Mapping[str, Callable[[str, Place], Started]]] = {
    "nginx": _nginx,
    "Apache": _apache,
    "haproxy": _haproxy,
    "Caddy": _caddy,
    "Varnish": _varnish,
    "Squid": _squid,
}


@contextmanager
def proxy(name: str, upstream: str, directory: Path, *, sub_path: bool = False) -> Iterator[RunningProxy]:
    """Run a proxy with the configuration of the page in front of a server; its own process is ended with the block."""
    entry = PROXIES[name]
    text = snippet(entry.language)
    for old, new in entry.sub_path if sub_path else ():
        assert text.count(old) == 1, (name, old)
        text = text.replace(old, new)
    text = text.replace("8000", upstream.rpartition(":")[2])
    place = Place(free_port(), directory / "certificate.pem", directory)
    write_certificate(place.certificate, "127.0.0.1")
    started = _STARTS[name](text, place)
    started.file.write_text(started.text, encoding="utf-8")
    with _running(started, place, name):
        scheme = "http" if entry.result("HTTP/2") == NO_TLS else "https"
        url = f"{scheme}://127.0.0.1:{place.port}{'/assistant' if sub_path else ''}"
        yield RunningProxy(url, place.certificate if scheme == "https" else None)


def _accepts(process: subprocess.Popen[bytes], place: Place) -> bool:
    assert process.poll() is None, (place.directory / "output.txt").read_text(encoding="utf-8")
    try:
        socket.create_connection(("127.0.0.1", place.port), timeout=5).close()
    except OSError:
        return False
    return True


@contextmanager
def balancer(upstreams: list[str], directory: Path, *, avoids_processes: bool = False) -> Iterator[str]:
    """Run nginx with the upstreams of `docs/operate.md`; yield its URL.

    With ``avoids_processes`` nginx avoids a process that has failed once, as it does by default for ten seconds.
    """
    operate = (Path(__file__).parents[2] / "docs" / "operate.md").read_text(encoding="utf-8")
    match = re.search(r"^```nginx\n(.*?)^```$", operate, re.DOTALL | re.MULTILINE)
    assert match is not None
    text = match[1]
    for port, upstream in zip(("8001", "8002"), upstreams, strict=True):
        text = text.replace(f"127.0.0.1:{port}", upstream.rpartition("/")[2])
    if avoids_processes:
        text = text.replace("max_fails=0", "fail_timeout=60s")
    location = snippet("nginx").replace(_UPSTREAM, "chat")
    place = Place(free_port(), directory / "none.pem", directory)
    started = _nginx(location, place)
    plain = started.text.replace(" ssl http2", "").replace("http {", f"http {{ {text}", 1)
    started.file.write_text(re.sub(r"ssl_certificate.*", "", plain), encoding="utf-8")
    with _running(started, place, "nginx"):
        yield f"http://127.0.0.1:{place.port}"


@contextmanager
def _running(started: Started, place: Place, name: str) -> Iterator[None]:
    with (place.directory / "output.txt").open("wb") as output:
        process = subprocess.Popen(started.command, cwd=place.directory, stdout=output, stderr=subprocess.STDOUT)
    try:
        eventually(lambda: _accepts(process, place), f"{name} listens")
        yield
    finally:
        process.terminate()
        process.wait(30)
