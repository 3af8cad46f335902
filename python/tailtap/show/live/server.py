"""Answers browsers and monitoring systems with the latest numbers."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from importlib.resources import files
from typing import Any, NamedTuple, Self

from tailtap.analysis.live.numbers import Board
from tailtap.base.errors import InputError, MachineError, PackageMissing
from tailtap.records.record import printed
from tailtap.show.live.metrics import exposition

LOOPBACK = "127.0.0.1"
NAMES = ("localhost", LOOPBACK)
"""What a browser on this machine calls it."""
PAGE = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
}
NUMBERS, METRICS = "/numbers.json", "/metrics"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""What the page may do: what it is made of comes from here."""
MOST_CONNECTIONS = 16
"""At a time: an attempt to open very many takes neither files nor threads from what measures."""
IDLE_SECONDS = 30
"""A connection on which nothing is asked for so long is closed."""


class Address(NamedTuple):
    """Where to listen; port 0 is any that is free."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """``HOST:PORT``, ``:PORT`` for all addresses, ``[::1]:PORT``. Raises `InputError`."""
        host, colon, port = text.rpartition(":")
        if not colon or not (port.isascii() and port.isdecimal() and int(port) < 1 << 16):
            raise InputError(
                f"{text!r} is no address: write HOST:PORT, such as 127.0.0.1:9400, or :9400 for "
                "all addresses of this machine"
            )
        return cls(host.removeprefix("[").removesuffix("]"), int(port))

    def __str__(self) -> str:
        """As a URL has it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Server:
    """Listens on an address until it is closed."""

    def __init__(
        self,
        address: Address,
        board: Board,
        *,
        page: bool,
        settle: Callable[[], object] = lambda: None,
    ) -> None:
        """Answer with the numbers on `board`: as a `page` or, without, as metrics.

        A `page` is for browsers of this machine: who asks for another one's is refused. `settle` is
        called by the thread that answers, and those that it starts are like it. Raises
        `MachineError` when it cannot listen there, or the library of metrics is missing.
        """
        if not page:
            try:
                import_module("prometheus_client")
                import_module("google.protobuf")
            except ImportError as error:
                extra = "'tailtap[metrics]'"
                raise PackageMissing("metrics need", "prometheus_client", extra) from error

        class Handler(_Handler):
            shown = board
            has_page = page

        class Listening(_Bounded):
            address_family = socket.AF_INET6 if ":" in address.host else socket.AF_INET

        try:
            self._server = Listening((address.host, address.port), Handler)
        except OSError as error:
            raise MachineError(f"cannot listen on {address}: {error.strerror or error}") from error
        self.address = Address(address.host, self._server.server_address[1])

        def serve() -> None:
            settle()
            self._server.serve_forever(poll_interval=_POLL_SECONDS)

        self._thread = threading.Thread(target=serve, name="tt-serve", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        """Listen on."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Answer nobody any more."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Bounded(ThreadingHTTPServer):
    """Has few connections open at a time: for a new one, the oldest has to go."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[_Handler]) -> None:
        self._open: dict[socket.socket, None] = {}
        self._changing = threading.Lock()
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own."""
        with self._changing:
            while len(self._open) >= MOST_CONNECTIONS:
                oldest = next(iter(self._open))
                del self._open[oldest]
                with contextlib.suppress(OSError):  # its thread ends, and closes it
                    oldest.shutdown(socket.SHUT_RDWR)
            self._open[request] = None
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close it."""
        with self._changing:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nobody wants to read why a client went away."""


_POLL_SECONDS = 1.0
"""How often it is looked whether it is to end."""


class _Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    shown: Board
    has_page: bool
    # A connection that outlived its answer would outlive the server.
    protocol_version = "HTTP/1.0"
    timeout = IDLE_SECONDS
    server_version = "tailtap"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer."""
        path = self.path.partition("?")[0]
        if self.has_page and not self._is_of_here():
            # A page from elsewhere may call itself by a name that leads here.
            self._answer(HTTPStatus.FORBIDDEN, b"only for browsers of this machine\n", "text/plain")
        elif path == METRICS and not self.has_page:
            content, kind = exposition(self.shown.latest, self.headers.get("Accept", ""))
            self._answer(HTTPStatus.OK, content, kind)
        elif path == NUMBERS and self.has_page:
            latest = self.shown.latest
            if latest is None:
                self._answer(HTTPStatus.NO_CONTENT)
            else:
                self._answer(HTTPStatus.OK, printed(latest).encode(), "application/json")
        elif path in PAGE and self.has_page:
            name, kind = PAGE[path]
            content = files("tailtap.show.live").joinpath("page", name).read_bytes()
            self._answer(HTTPStatus.OK, content, kind)
        else:
            self._answer(HTTPStatus.NOT_FOUND, b"there is no such thing here\n", "text/plain")

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody wants to read it."""

    def _is_of_here(self) -> bool:
        return self.headers.get("Host", "").rpartition(":")[0] in NAMES

    def _answer(self, status: HTTPStatus, content: bytes = b"", kind: str = "") -> None:
        self.send_response(status)
        if kind:
            self.send_header("Content-Type", kind)
        if status is not HTTPStatus.NO_CONTENT:
            self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(content)
