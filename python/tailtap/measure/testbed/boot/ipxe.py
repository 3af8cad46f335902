"""`ipxe`: the host boots over its network, and this machine serves what it asks for, once."""

from __future__ import annotations

import contextlib
import http.server
import shutil
import threading
from collections.abc import Iterator
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Annotated

from pydantic import Field

from tailtap.base.errors import MachineError
from tailtap.base.schema import Matching, Strict
from tailtap.measure.testbed.boot import Files, reboot
from tailtap.measure.testbed.ssh import FarHost

READ_SECONDS = 30.0
"""How long a client may be silent."""


class IpxeOptions(Strict):
    """Where this machine serves."""

    address: Annotated[
        str, Matching(r"^[^\s]+$", "an address without blanks, such as 10.0.0.1")
    ] = Field(
        min_length=1,
        max_length=255,
        description="An address of this machine that the host can reach, on which it serves HTTP.",
        examples=["10.0.0.1"],
    )
    port: int = Field(default=8045, ge=1, le=65535, description="Its TCP port.", examples=[8046])


class Ipxe:
    """Serves a script, a kernel and an initial RAM disk while the host boots."""

    def __init__(self, name: str, options: IpxeOptions) -> None:
        self._name, self._options = name, options

    @contextlib.contextmanager
    def boot(self, host: FarHost, files: Files) -> Iterator[None]:
        """Serve, and have the host reboot; it must boot from its network first."""
        if not files.ours:
            raise MachineError(
                "by iPXE a host boots a live image, and there is none for "
                f"{files.release}: name it in `boot.images`"
            ).at(host.name)
        where = f"http://{self._options.address}:{self._options.port}"
        served: dict[str, bytes | Path] = {
            f"/{self._name}.ipxe": script(self._name, files).encode(),
            **{f"/{self._name}/{path.name}": path for path in files.paths},
        }
        secret = None if files.key is None else f"/{self._name}/{Path(files.key).name}"
        with _serving(self._options, served, secret) as asked:
            reboot(host)
            yield
            if secret is not None and len(asked.get(secret, ())) > 1:
                raise MachineError(
                    "its host key was asked for more than once, by "
                    f"{', '.join(asked[secret])}: make a new one (docs/howto/testbed.md), and let "
                    "nobody else into the network that it boots from"
                ).at(host.name)
            if f"/{self._name}.ipxe" not in asked:
                raise MachineError(
                    f"{host.name} rebooted, but did not ask for {where}/{self._name}.ipxe: have "
                    "its iPXE chain that address first (docs/howto/testbed.md)"
                )

    def tidy(self, host: FarHost) -> None:
        """Nothing was left there."""


def script(name: str, files: Files) -> str:
    """The script that boots `files`.

    Its paths are relative to where the host has the script from, which may see this machine by
    another address.
    """
    kernel, *initrd = files.paths
    # A kernel booted by EFI finds the file by this name; others do not look.
    named = [f"initrd={path.name}" for path in initrd]
    lines = ["#!ipxe", f"kernel {name}/{kernel.name} {' '.join([*named, files.line])}"]
    lines += [f"initrd {name}/{path.name}" for path in initrd]
    return "\n".join([*lines, "boot", ""])


@contextlib.contextmanager
def _serving(
    options: IpxeOptions, served: dict[str, bytes | Path], secret: str | None
) -> Iterator[dict[str, list[str]]]:
    """Serve these paths and no others; who asked for each. Raises `MachineError`.

    The path `secret` is served once, and only to an address that has asked for another one.
    """
    asked: dict[str, list[str]] = {}
    try:
        server = http.server.ThreadingHTTPServer(
            (options.address, options.port), partial(_Answer, served, asked, secret)
        )
    except OSError as error:
        raise MachineError(
            f"cannot serve HTTP on {options.address} port {options.port}: {error.strerror}: say "
            "another `boot.address` or `boot.port`"
        ) from error
    with server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield asked
        finally:
            server.shutdown()
            thread.join()


class _Answer(http.server.BaseHTTPRequestHandler):
    timeout = READ_SECONDS

    def __init__(
        self,
        served: dict[str, bytes | Path],
        asked: dict[str, list[str]],
        secret: str | None,
        *connection: object,
    ) -> None:
        self._served, self._asked, self._secret = served, asked, secret
        super().__init__(*connection)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        self._send(body=True)

    def do_HEAD(self) -> None:
        self._send(body=False)

    def log_message(self, format: str, *values: object) -> None:
        """Nobody reads it."""

    def _admitted(self, body: bool) -> bool:
        """Whether who asks gets it; it is remembered that it was asked for."""
        whom = str(self.client_address[0])
        if self.path == self._secret:
            if not any(whom in others for others in self._asked.values()):
                return False
            if not body:
                return True
            whom = f"{whom} port {self.client_address[1]}"
        # Of two that ask at once, one is the first in the list.
        askers = self._asked.setdefault(self.path, [])
        askers.append(whom)
        return self.path != self._secret or askers[0] == whom

    def _send(self, *, body: bool) -> None:
        content = self._served.get(self.path)
        if content is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        if not self._admitted(body):
            self.send_error(HTTPStatus.FORBIDDEN)
            return
        size = len(content) if isinstance(content, bytes) else content.stat().st_size
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(size))
        self.end_headers()
        if not body:
            return
        with contextlib.suppress(ConnectionError, TimeoutError):
            if isinstance(content, bytes):
                self.wfile.write(content)
            else:
                with content.open("rb") as file:
                    shutil.copyfileobj(file, self.wfile, 1 << 20)
