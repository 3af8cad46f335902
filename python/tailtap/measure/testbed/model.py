"""The testbed file: hosts, the cables between their network cards, and the roles of hosts.

Which cables a measurement uses is a pure function of it.
"""

from __future__ import annotations

import contextlib
import itertools
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeAlias

from pydantic import Field, GetPydanticSchema, ValidationError, field_validator, model_validator
from pydantic_core import core_schema

from tailtap.base.document import Misfit, load
from tailtap.base.errors import InputError
from tailtap.base.schema import Matching, Strict, Written, as_value_error, name_words
from tailtap.experiment.reading import errors_in
from tailtap.lab.topology.graphs import Cables
from tailtap.measure.testbed.boot import BootOptions
from tailtap.measure.testbed.power import POWERS, Command

WORD = r"^[^\s-]\S*$"
"""What no program takes for an option, nor a shell for two words."""
HostName: TypeAlias = Annotated[
    str, Matching(r"^[a-z][a-z0-9-]{0,30}$", name_words(31, "dut-1")), Written("name")
]


class Socket(NamedTuple):
    """A network card of a host, by its name or its PCI address."""

    host: str
    card: str

    def __str__(self) -> str:
        """``HOST:CARD``, as in the file."""
        return f"{self.host}:{self.card}"


def _socket(text: str) -> Socket:
    host, colon, card = text.partition(":")
    if not (host and colon and card) or " " in text:
        raise ValueError("write HOST:CARD, such as dut:enp1s0f0")
    return Socket(host, card)


Card: TypeAlias = Annotated[
    Socket,
    GetPydanticSchema(
        lambda *_: core_schema.no_info_after_validator_function(
            _socket, core_schema.str_schema(), serialization=core_schema.to_string_ser_schema()
        )
    ),
    Written("HOST:CARD"),
]


class Host(Strict):
    """A machine of the testbed."""

    ssh: Annotated[str, Matching(WORD, "USER@ADDRESS, or a name that ssh knows")] | None = Field(
        default=None,
        description="Where ssh finds it: USER@ADDRESS or a name of ssh's own configuration. Left "
        "out, it is the machine on which tailtap is started.",
        examples=["root@dut.example.org"],
    )
    python: Annotated[str, Matching(WORD, "the path of an interpreter")] = Field(
        default="python3",
        description="The interpreter there. Where there is none, or one of another version than "
        "tailtap's own here, that one is copied.",
        examples=["/usr/bin/python3.11"],
    )
    power: Annotated[dict[str, Any], Written("mapping with the key kind")] | None = Field(
        default=None,
        description="What switches the host on and off: a kind and its options, which "
        "docs/reference/kinds.md lists.",
        examples=[{"kind": "ipmi", "address": "10.0.0.9", "password_file": "bmc.password"}],
    )

    boot: Annotated[BootOptions, Written("mapping with the key via")] | None = Field(
        default=None,
        description="How the host is booted with the kernel and the parameters that a run asks for "
        "by dut.kernel and dut.boot. Without it nothing reboots the host.",
        examples=[{"via": "kexec"}],
    )
    console: Command | None = Field(
        default=None,
        description="A command that shows the host's serial console until it is ended. By default "
        "that of its controller, where `power` is of the kind ipmi.",
        examples=["telnet consoles.example.org 7012"],
    )

    @field_validator("power")
    @classmethod
    def _power_of_a_kind(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value is not None:
            with as_value_error():
                POWERS.chosen("kind", value)
        return value


class Cable(Strict):
    """A cable between two network cards."""

    ends: tuple[Card, Card] = Field(
        strict=False,
        description="The two cards that it joins, each by its name or its PCI address.",
        examples=[["tester:enp1s0f0", "dut:enp3s0f0"]],
    )
    splitter: Card | None = Field(
        default=None,
        description="The card that sees what this cable carries from the generator to the DuT, or "
        "from the DuT to the generator: behind an optical splitter, or at a mirror port.",
        examples=["stamper:enp1s0f0"],
    )


class RoleMap(Strict):
    """Which host has which role in a measurement."""

    dut: HostName = Field(description="The host that is measured.", examples=["dut"])
    generator: HostName = Field(description="The host that sends.", examples=["tester"])
    timestamper: HostName = Field(description="The host that stamps.", examples=["tester"])


class Testbed(Strict):
    """A testbed file after reading."""

    __test__ = False  # no class of tests

    hosts: Annotated[
        dict[HostName, Host], Field(min_length=1), Written("mapping from names to hosts")
    ] = Field(
        description="The machines.",
        examples=[{"tester": {"ssh": "root@tester"}, "dut": {"ssh": "root@dut"}}],
    )
    cables: Annotated[list[Cable], Written("list of cables")] = Field(
        description="The cables. Of those at the DuT's host the first is before the DuT, and the "
        "second behind it. Each further flow of a network has the next two.",
        examples=[[{"ends": ["tester:enp1s0f0", "dut:enp3s0f0"]}]],
    )
    roles: RoleMap = Field(
        description="Who does what.",
        examples=[{"dut": "dut", "generator": "tester", "timestamper": "tester"}],
    )
    ssh_config: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="A configuration file for ssh instead of its own, beside the testbed file. It "
        "says users, ports, keys and jump hosts.",
        examples=["ssh_config"],
    )

    @field_validator("hosts")
    @classmethod
    def _far_hosts_boot(cls, hosts: dict[str, Host]) -> dict[str, Host]:
        for name, host in hosts.items():
            if host.boot is not None and host.ssh is None:
                raise ValueError(
                    f"{name} is this machine, which cannot boot itself and go on: give it an ssh "
                    "address and start tailtap elsewhere, or leave boot out"
                )
        return hosts

    @model_validator(mode="after")
    def _names_that_are_there(self) -> Testbed:
        for role, host in self.roles.model_dump().items():
            self._require(host, ("roles", role))
        taken: dict[Socket, int] = {}
        for number, cable in enumerate(self.cables):
            at = ("cables", number)
            for card in (*cable.ends, *([] if cable.splitter is None else [cable.splitter])):
                self._require(card.host, at)
                if card in taken:
                    raise Misfit(at, f"{card} has a cable already", [("cables", taken[card])])
                taken[card] = number
        return self

    def _require(self, host: str, at: tuple[str | int, ...]) -> None:
        if host not in self.hosts:
            known = ", ".join(self.hosts)
            raise Misfit(at, f"hosts has no {host}: there are {known}", [("hosts",)])


def read_testbed(path: Path) -> Testbed:
    """The testbed of a file. Raises `InputError` with file, line and key path."""
    document = load(path, named=True)
    try:
        testbed = Testbed.model_validate(dict(document.data))
    except ValidationError as error:
        raise errors_in(document, document.data, error, (), {}, Testbed) from error
    hosts = {name: _found(host, path.absolute().parent) for name, host in testbed.hosts.items()}
    testbed = testbed.model_copy(update={"hosts": hosts})
    if testbed.ssh_config is None:
        return testbed
    config = path.absolute().parent / testbed.ssh_config
    if not config.is_file():
        raise document.wrong(("ssh_config",), f"there is no file {config}")
    return testbed.model_copy(update={"ssh_config": str(config)})


def _found(host: Host, folder: Path) -> Host:
    """The host with its live images found, which the file names beside itself."""
    if host.boot is None:
        return host
    images = {name: str(folder / image) for name, image in host.boot.images.items()}
    return host.model_copy(update={"boot": host.boot.model_copy(update={"images": images})})


def cables_of(testbed: Testbed, entries: int = 1) -> tuple[Cables, ...]:
    """The cables before and behind the DuT by the cards at their ends, two for each of `entries`,
    and those of further pairs of its cards.

    Raises `InputError` for a testbed without them, or whose roles do not fit to them.
    """
    roles = testbed.roles
    found = [_turned(cable, roles.dut) for cable in testbed.cables
             if roles.dut in (end.host for end in cable.ends)]  # fmt: skip
    if len(found) < 2 * entries:
        each = "" if entries == 1 else f" for each of {entries} flows"
        raise InputError(
            f"cables: {len(found)} of them end at {roles.dut}, which is the DuT: it needs one "
            f"before it and one behind it{each}"
        )
    pairs = list(zip(found[::2], found[1::2], strict=False))
    made = [_pair(roles, *pair) for pair in pairs[:entries]]
    if len({one.tap_kind for one in made}) > 1:
        raise InputError(
            "cables: all of the DuT need a splitter, or none of them: all flows are stamped alike"
        )
    for pair in pairs[entries:]:
        with contextlib.suppress(InputError):  # these may be for something else
            made.append(_pair(roles, *pair))
    return tuple(made)


def senders_of(testbed: Testbed) -> list[Socket | None]:
    """For each cable, the end that sends what is measured: of those of the DuT in turn the other
    end, and the DuT's. None for cables between other hosts.
    """
    places = itertools.count()
    found: list[Socket | None] = []
    for cable in testbed.cables:
        if testbed.roles.dut not in (end.host for end in cable.ends):
            found.append(None)
            continue
        own, other = _turned(cable, testbed.roles.dut).ends
        found.append(own if next(places) % 2 else other)
    return found


def _pair(roles: RoleMap, before: Cable, behind: Cable) -> Cables:
    dut = (before.ends[0].card, behind.ends[0].card)
    others = (before.ends[1], behind.ends[1])
    if before.splitter is None and behind.splitter is None:
        if roles.timestamper != roles.generator:
            raise InputError(
                "cables: no cable of the DuT has a splitter, so packets are stamped where they "
                "are sent: give generator and timestamper the same host, or cables a splitter"
            )
        _require(others, roles.timestamper, "timestamper")
        return Cables(dut, (others[0].card, others[1].card))
    if before.splitter is None or behind.splitter is None:
        raise InputError("cables: both cables of the DuT need a splitter, or none of them")
    copies = (before.splitter, behind.splitter)
    _require(copies, roles.timestamper, "timestamper")
    _require(others, roles.generator, "generator")
    return Cables(dut, (copies[0].card, copies[1].card), (others[0].card, others[1].card))


def _turned(cable: Cable, dut: str) -> Cable:
    """The cable with the DuT's end first."""
    one, other = cable.ends
    ends = (one, other) if one.host == dut else (other, one)
    return cable.model_copy(update={"ends": ends})


def _require(cards: tuple[Socket, Socket], host: str, role: str) -> None:
    for card in cards:
        if card.host != host:
            raise InputError(f"cables: {card} should be a card of {host}, which is the {role}")
