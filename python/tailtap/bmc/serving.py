"""What is served where, and to whom: a file, or words on the command line; and serving it."""

from __future__ import annotations

import contextlib
import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError

from tailtap.base.document import Document, FileKind, KeyPath, load, parse
from tailtap.base.errors import (
    InputError,
    MachineError,
    PackageMissing,
    WrongValue,
    did_you_mean,
    naming,
)
from tailtap.base.schema import Strict
from tailtap.base.writing import read_private
from tailtap.bmc import MACHINES, MachineKind
from tailtap.records.record import Record


class BmcEvent(Record, kw_only=True, omit_defaults=True, rename={"address_of": "from"}):
    """Something that happened at the controller of a machine."""

    event: Literal["listening", "power", "boot", "refused", "failed"]
    machine: str
    address: str | None = None
    exposed: bool | None = None
    """Whether others than this machine reach that address."""
    action: str | None = None
    device: str | None = None
    user: str | None = None
    address_of: str | None = None
    why: str | None = None
    muted: bool | None = None
    """Whether further ones are not told for a minute."""


def serve(
    configuration: Configuration,
    tell: Callable[[BmcEvent], None],
    wait: Callable[[], object],
) -> None:
    """Serve all controllers of `configuration` until `wait` returns.

    `tell` is given what happens by several threads, one at a time. The machines stay as they are.
    Raises `MachineError` when a machine is missing or an address is taken; then nothing is served.
    """
    if find_spec("cryptography") is None:
        raise PackageMissing("controllers need", "cryptography")
    from tailtap.bmc.controller import Controller

    with contextlib.ExitStack() as stack:
        controllers: list[Controller] = []
        for number, one in enumerate(configuration.served, start=1):
            try:
                machine = one.kind.open(one.options)
            except MachineError as error:
                raise error.at(one.name) from error
            made = Controller(
                one.name, machine, one.listen, configuration.users, tell, number=number
            )
            controllers.append(made)
            stack.callback(made.close)
        for one, made in zip(configuration.served, controllers, strict=True):
            made.start()
            tell(
                BmcEvent(
                    event="listening", machine=one.name, address=made.address, exposed=one.exposed
                )
            )
        wait()


LOOPBACK = "127.0.0.1"

MOST = 255
"""Device ids have a byte."""

MOST_NAME_BYTES, MOST_PASSWORD_BYTES = 16, 20
"""IPMI 2.0 has room for no more."""

FILE = FileKind("list of controllers", "this file is a mapping with 'credentials' and 'machines'")

USERS = FileKind("file of credentials", "credentials are lines of 'name: password'")

_SERVED = re.compile(r"([\w-]+):(.+)@([^@]+)")


class Listed(Strict):
    """A file of `tailtap bmc`."""

    credentials: str = Field(min_length=1)
    machines: list[dict[str, Any]] = Field(min_length=1, max_length=MOST)


@dataclass(frozen=True)
class Served:
    """A machine that gets a controller."""

    name: str
    """Kind and name, ``lxc:web``."""
    kind: MachineKind
    options: BaseModel
    listen: tuple[str, int]
    """IP address and UDP port."""

    @property
    def exposed(self) -> bool:
        """Whether others than this machine reach the controller."""
        return not ipaddress.ip_address(self.listen[0]).is_loopback


@dataclass(frozen=True)
class Configuration:
    """All that is served, and who may use it."""

    served: Sequence[Served]
    users: Mapping[str, str]
    """Passwords by the names of their users."""


def read(
    path: Path | None, serve: Sequence[str] = (), credentials: Path | None = None
) -> Configuration:
    """What the file at `path` lists, and what each of `serve` (``KIND:NAME@LISTEN``) names.

    `credentials` replaces those that the file names. Raises `InputError` with file, line and key,
    or with the option.
    """
    served: list[Served] = []
    if path is not None:
        document = load(path, FILE, named=True)
        listed = _listed(document)
        for position, row in enumerate(listed.machines):
            served.append(_served(document, ("machines", position), row))
        if credentials is None:
            credentials = path.parent / Path(listed.credentials).expanduser()
    served += [_of_words(text) for text in serve]
    if not served:
        raise InputError("nothing to serve: give a FILE, or --serve KIND:NAME@LISTEN")
    if credentials is None:
        raise InputError("--credentials is missing: a file with lines of 'name: password'")
    if len(served) > MOST:
        raise InputError(f"{len(served)} machines are too many: {MOST} have a device id")
    for what, values in (
        ("machine", [one.name for one in served]),
        ("address", [shown(one.listen) for one in served if one.listen[1]]),
    ):
        twice = next((value for value in values if values.count(value) > 1), None)
        if twice is not None:
            raise InputError(f"the {what} {twice} is given twice: each controller has its own")
    return Configuration(served, read_users(credentials))


def read_users(path: Path) -> dict[str, str]:
    """Passwords by name, from a file that only its owner may use. Raises `InputError`."""
    data = parse(read_private(path), str(path), USERS).data
    for name, password in data.items():
        if not isinstance(password, str):
            raise InputError("a password is text: put quotes around it").at(name).at(path)
        if not 0 < len(name.encode()) <= MOST_NAME_BYTES:
            raise (
                InputError(f"names have {MOST_NAME_BYTES} bytes at most in IPMI").at(name).at(path)
            )
        if not 0 < len(password.encode()) <= MOST_PASSWORD_BYTES:
            raise (
                InputError(f"passwords have 1 to {MOST_PASSWORD_BYTES} bytes in IPMI")
                .at(name)
                .at(path)
            )
    if not data:
        raise InputError(f"there is no user: {USERS.shape}").at(path)
    return dict(data)


def parse_listen(value: object) -> tuple[str, int]:
    """Address and port of ``6230``, ``10.0.0.1:623`` or ``[::1]:6230``; loopback by default.

    Raises `InputError`.
    """
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if colon else LOOPBACK
    if re.fullmatch(r"[0-9]{1,5}", port) and int(port) < 1 << 16:
        try:
            return str(ipaddress.ip_address(host)), int(port)
        except ValueError:
            pass
    raise InputError(
        f"{value!r} is no address: write a port of this machine, 6230, or an IP address and a "
        "port, 10.0.0.1:623 or [::1]:6230"
    )


def shown(address: tuple[Any, ...]) -> str:
    """An address and a port as they are written, also as the system tells them."""
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    return f"{host}:{address[1]}"


def _listed(document: Document) -> Listed:
    try:
        return Listed.model_validate(document.data)
    except ValidationError as error:
        raise _wrong(document, error, (), Listed) from error


def _wrong(
    document: Document, error: ValidationError, path: KeyPath, model: type[BaseModel]
) -> InputError:
    # It loads all that an experiment can name, which takes longer than all else of the program.
    from tailtap.experiment.reading import errors_in

    return errors_in(document, document.data, error, path, {}, model)


def _served(document: Document, path: KeyPath, row: Mapping[str, Any]) -> Served:
    def wrong(key: str, reason: str) -> InputError:
        return document.wrong((*path, key), reason)

    for key in ("kind", "listen"):
        if key not in row:
            raise wrong(key, "this key is missing")
    name = row["kind"]
    if not isinstance(name, str) or name not in MACHINES:
        known = did_you_mean(str(name), MACHINES)
        raise wrong("kind", f"there is no kind of machine {name!r}: {known}")
    try:
        listen = parse_listen(row["listen"])
    except InputError as error:
        raise wrong("listen", str(error)) from error
    kind = MACHINES[name]
    rest = {key: value for key, value in row.items() if key not in ("kind", "listen")}
    try:
        options = kind.Options.model_validate(rest)
    except ValidationError as error:
        raise _wrong(document, error, path, kind.Options) from error
    return Served(f"{name}:{rest['name']}", kind, options, listen)


def _of_words(text: str) -> Served:
    found = _SERVED.fullmatch(text)
    if found is None:
        raise WrongValue(
            "--serve", text, "write it as KIND:NAME@LISTEN, such as lxc:web@127.0.0.1:6230"
        )
    row = {"kind": found[1], "name": found[2], "listen": found[3]}
    with naming(f"--serve {text!r}"):
        return _served(Document("", row, {(): "as on the command line"}), (), row)
