"""What tells people and machines from others, replaced wherever it stands.

Some of it is known by its field (`hostname`, `boot_id`, `serial`), some by its form (a hardware
address). What a field says of a machine is looked for in every text. The same value has the same
name everywhere, so that what belongs together can still be told.

A name that is a word of the experiment as well, such as a host called `vm`, is replaced in fields
of its own alone: elsewhere nobody could tell the two apart.
"""

from __future__ import annotations

import contextlib
import ipaddress
import itertools
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast, get_args

import pyarrow as pa

from tailtap.base.errors import InputError
from tailtap.records.site import Redacted, RedactedKind
from tailtap.records.trace import Task

KINDS: tuple[RedactedKind, ...] = get_args(RedactedKind)
ALLOWED: tuple[RedactedKind, ...] = ("serials", "macs", "hostnames", "users", "addresses", "ids")
"""What a user may publish."""


def allowed_kinds(names: Iterable[str]) -> list[RedactedKind]:
    """The kinds of these names, without empty ones. Raises `InputError` for another name."""
    kinds = [name.strip() for name in names if name.strip()]
    for kind in kinds:
        if kind not in ALLOWED:
            raise InputError(f"{kind!r} is none of {', '.join(ALLOWED)}").at("--allow")
    return cast("list[RedactedKind]", kinds)


FIELDS: Mapping[str, RedactedKind] = {
    "hostname": "hostnames",
    "host_name": "hostnames",
    "fqdn": "hostnames",
    "username": "users",
    "login": "users",
    "owner": "users",
    "boot_id": "ids",
    "machine_id": "ids",
    "machine-id": "ids",
    "asset_tag": "serials",
    "password": "secrets",
    "passwd": "secrets",
    "secret": "secrets",
    "token": "secrets",
}
"""Fields whose text is of a kind, whatever it looks like."""
_NUMBER_FIELDS: tuple[tuple[RedactedKind, re.Pattern[str]], ...] = (
    ("serials", re.compile(r"(.*[_ -])?serial([_ -]?(number|no))?", re.IGNORECASE)),
    ("ids", re.compile(r"(.*[_ -])?uuid", re.IGNORECASE)),
)
TASK = frozenset(Task.__struct_fields__)
"""Fields of a task of anybody: of its command line only the program is published."""
NUMBERED = frozenset(("driver_version", "firmware", "release", "version", "versions"))
"""Fields whose text may look like an address and is none."""

_MAC = re.compile(
    r"(?<![0-9A-Fa-f:-])[0-9A-Fa-f]{2}([:-])(?:[0-9A-Fa-f]{2}\1){4}[0-9A-Fa-f]{2}(?![0-9A-Fa-f:-])"
    r"|(?<![\w.])[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4}(?![\w.])"
    r"|(?<=\benx)[0-9a-f]{12}\b"
)
_UUID = re.compile(r"(?<![\w-])[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}(?![\w-])")
_IPV4 = re.compile(r"(?<![\w.-])(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?![\w-]|\.[0-9])")
_IPV6 = re.compile(r"(?<![\w:.])(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}(?![\w:.])")
_VERSION = re.compile(r"(?:version|release|firmware|revision)[ :=]+\Z", re.IGNORECASE)
_LEARNT: tuple[tuple[RedactedKind, re.Pattern[str]], ...] = (
    (
        "serials",
        re.compile(
            r"\b(?:serial(?:[ _-]?(?:number|no))?|s/n|asset[ _-]?tag)\.?\s*[:=#]\s*[\"']?"
            r"(?=[\w./-]*[0-9])([A-Za-z0-9][\w./-]{3,})",
            re.IGNORECASE,
        ),
    ),
    ("serials", re.compile(r"/by-id/([\w.:-]+)")),
    ("ids", re.compile(r"machine[-_]id\s*[:=]\s*[\"']?([0-9a-f]{32})\b")),
    ("users", re.compile(r"(?<![\w/])/(?:home|Users)/([\w.-]+)")),
    ("users", re.compile(r"(?<![\w.+-])([\w.+-]+)@[\w-]+(?:\.[\w-]+)+")),
    ("hostnames", re.compile(r"(?<![\w.+-])[\w.+-]+@([\w-]+(?:\.[\w-]+)+)")),
    (
        "secrets",
        re.compile(
            r"\b(?:password|passwd|token|secret)\s*[:=]\s*[\"']?([^\s\"',;]+)", re.IGNORECASE
        ),
    ),
)
"""What a text says a value is."""
_PATH = re.compile(
    r"(?<![\w/.])/(?:home|Users|root|srv|data|mnt|media|scratch|work|opt|tmp|nfs|var/tmp|dev/shm)"
    r"((?:/[^\s/\"',;:()<>]+)*)/([^\s/\"',;:()<>]+)"
)
_DATE = re.compile(r"(?<![\w-])([0-9]{4})-([0-9]{2})-[0-9]{2}(?:[T ][0-9:.,]+(?:Z|[+-][0-9:]+)?)?")
EVERYBODY = frozenset(
    ("root", "user", "admin", "localhost", "localhost.localdomain", "nobody", "(none)")
)
"""Names that tell nobody from others."""
KEPT_MACS = frozenset(("000000000000", "ffffffffffff"))
KEPT_NETWORKS = tuple(
    map(
        ipaddress.ip_network,
        (
            "0.0.0.0/32",
            "127.0.0.0/8",
            "198.18.0.0/15",
            "224.0.0.0/4",
            "255.255.255.255/32",
            "::/127",
            "2001:2::/48",
            "ff00::/8",
        ),
    )
)
"""Networks of nobody: this machine, all machines, benchmarks (RFC 2544, 5180)."""


Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def _address(number: int, version: int) -> str:
    """A documentation's address; when these are used up, one of a network that is never routed."""
    if version == 6:
        return str(ipaddress.IPv6Address("2001:db8::") + number)
    place = number - 1
    for network in ("192.0.2.0", "198.51.100.0", "203.0.113.0"):
        if place < 254:
            return str(ipaddress.IPv4Address(network) + place + 1)
        place -= 254
    return str(ipaddress.IPv4Address("240.0.0.0") + place)


PSEUDONYMS: Mapping[RedactedKind, Callable[[int], str]] = {
    "serials": "serial-{}".format,
    "macs": lambda number: ":".join(f"{byte:02x}" for byte in (0x02 << 40 | number).to_bytes(6)),
    "hostnames": "host-{}".format,
    "users": "user-{}".format,
    "ids": "00000000-0000-4000-8000-{:012x}".format,
    "paths": "/folder-{}".format,
    "secrets": "secret-{}".format,
    "people": "name-{}".format,
}
"""What stands in place of the first value, of the second, and so on. A hardware address is one of
those that are given locally, and an id is a UUID, so that readers take them for what they are."""


@dataclass
class Redactor:
    """Replaces what identifies, and counts that. First it learns, then it replaces."""

    allowed: Collection[RedactedKind] = ()
    anonymous: bool = False
    """Also folders, days, and what `hidden` names: for a review whose authors are not known."""
    hidden: Collection[str] = ()
    """Texts of which the user says that they identify somebody."""
    kept_addresses: Collection[str] = ()
    """Addresses that the experiment file gave to packets."""
    folders: Collection[str] = ()
    """What the experiment's folder is called: the site's files are in the site."""
    known: dict[str, RedactedKind] = field(default_factory=dict)
    """What fields and texts said that it is of a kind."""
    common: set[str] = field(default_factory=set)
    """Words of the experiment: keys, and values of its parameters."""
    whole: dict[str, str] = field(default_factory=dict)
    """Of the first part of a machine's name its whole name."""
    names: dict[tuple[RedactedKind, str], str] = field(default_factory=dict)
    taken: Counter[RedactedKind] = field(default_factory=Counter)
    """How many names of a kind are given."""
    places: Counter[RedactedKind] = field(default_factory=Counter)
    ambiguous: Counter[RedactedKind] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        """Take what the user hides for known."""
        self.known |= dict.fromkeys(self.hidden, "people")

    def learn(self, value: object, key: str = "") -> None:
        """Note what a text, or each text of a JSON value, says of machines and people."""
        if isinstance(value, Mapping):
            for name, inner in value.items():
                self.common.add(str(name))
                if name in ("parameters", "variables"):
                    self._words(inner)
                self.learn(inner, str(name))
        elif isinstance(value, list | tuple):
            for inner in value:
                self.learn(inner, key)
        elif isinstance(value, str) and value:
            kind = _kind_of(key)
            if kind is not None:
                self._know(value, kind)
            for kind, form in _LEARNT:
                for found in form.finditer(value):
                    self._know(found[1], kind)

    def _words(self, value: object) -> None:
        """Note the texts of a JSON value as words of the experiment."""
        if isinstance(value, Mapping):
            value = list(value.values())
        if isinstance(value, list | tuple):
            for inner in value:
                self._words(inner)
        elif isinstance(value, str):
            self.common.add(value)

    def _know(self, value: str, kind: RedactedKind) -> None:
        value = value.strip()
        if len(value) < 2 or value.lower() in EVERYBODY or kind in self.allowed:
            return
        self.known.setdefault(value, kind)
        if kind == "hostnames" and "." in value:  # a machine is called by the first part, too
            short = value.partition(".")[0]
            if len(short) > 1 and not short.isdigit():
                self.known.setdefault(short, kind)
                whole = self.whole.setdefault(short.lower(), value.lower())
                if whole != value.lower():  # there are two of that name
                    self.whole[short.lower()] = short.lower()

    @cached_property
    def _known(self) -> tuple[re.Pattern[str] | None, Mapping[str, tuple[str, RedactedKind]]]:
        """All that is known, as one expression, and by how it is written."""
        texts = {
            value.lower(): (value, kind)
            for value, kind in self.known.items()
            if kind == "people" or value not in self.common
        }
        longest = sorted(texts, key=lambda text: (-len(text), text))
        if not longest:
            return None, texts
        one_of = "|".join(map(re.escape, longest))
        domain = r"(?P<domain>(?:\.[A-Za-z][A-Za-z0-9-]*){2,})?"
        return re.compile(
            f"(?<![A-Za-z0-9])(?P<value>{one_of})(?![A-Za-z0-9]){domain}", re.IGNORECASE
        ), texts

    def text(self, text: str, key: str = "") -> str:
        """A text without what identifies; `key` is the field that it is in."""
        kind = _kind_of(key)
        if kind is not None and kind not in self.allowed:
            value = text.strip()
            if value and value.lower() not in EVERYBODY:
                self.ambiguous[kind] += value in self.common and kind != "people"
                return self._named(kind, value)
            return text
        for folder in self.folders:
            text = text.replace(folder, ".")
        form, texts = self._known
        if form is not None:

            def replace(found: re.Match[str]) -> str:
                value, kind = texts[found["value"].lower()]
                more = "" if kind == "hostnames" else found["domain"] or ""
                return self._named(kind, value) + more

            text = form.sub(replace, text)
        if "macs" not in self.allowed:
            text = _MAC.sub(self._mac, text)
        if "ids" not in self.allowed:
            text = _UUID.sub(self._uuid, text)
        if "addresses" not in self.allowed and key not in NUMBERED:
            text = _IPV6.sub(self._ip, _IPV4.sub(self._ip, text))
        if self.anonymous:
            text = _PATH.sub(self._path, text)
            text = _DATE.sub(self._date, text)
        return text

    def json(self, value: Any, key: str = "") -> Any:
        """A JSON value without what identifies; keys stay in their order."""
        if isinstance(value, dict):
            inner = key if key in NUMBERED else ""
            if value.keys() >= TASK and isinstance(value["command"], str):
                value = value | {"command": next(iter(value["command"].split()), "")}
            return {
                self.text(str(name)): self.json(one, inner or str(name))
                for name, one in value.items()
            }
        if isinstance(value, list):
            return [self.json(one, key) for one in value]
        return self.text(value, key) if isinstance(value, str) else value

    def table(self, table: pa.Table) -> pa.Table:
        """An Arrow table whose texts do not identify; the same one where nothing was replaced."""
        for place, column in enumerate(table.schema):
            if not _holds_text(column.type):
                continue
            before = table.column(place)
            if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
                coded = before.combine_chunks().dictionary_encode()
                if isinstance(coded, pa.ChunkedArray):
                    coded = coded.combine_chunks()
                words = coded.dictionary.to_pylist()
                after = [self.text(word, column.name) for word in words]
                if after == words:
                    continue
                replaced = pa.array(after, column.type).take(coded.indices)
            else:
                rows = before.to_pylist()
                after = [self.json(row, column.name) for row in rows]
                if after == rows:
                    continue
                replaced = pa.array(after, column.type)
            table = table.set_column(place, column, replaced)
        return table

    def told(self) -> list[Redacted]:
        """What was replaced, by kind; never a value."""
        found = []
        for kind in KINDS:
            names = [name for (of, _), name in self.names.items() if of == kind]
            if names:
                found.append(
                    Redacted(
                        kind=kind, values=len(names), places=self.places[kind], example=names[0]
                    )
                )
        return found

    def originals(self) -> Iterator[str]:
        """What must not be found in the site any more."""
        for kind, value in self.names:
            if kind not in ("dates", "macs", "paths") and value not in self.common:
                yield value

    def _named(
        self, kind: RedactedKind, value: str, make: Callable[[int], str] | None = None
    ) -> str:
        self.places[kind] += 1
        if kind in ("hostnames", "ids"):  # neither tells great letters from small ones
            value = self.whole.get(value.lower(), value.lower())
        name = self.names.get((kind, value))
        if name is None:
            self.taken[kind] += 1
            name = self.names[kind, value] = (make or PSEUDONYMS[kind])(self.taken[kind])
        return name

    def _mac(self, found: re.Match[str]) -> str:
        digits = re.sub("[^0-9a-f]", "", found[0].lower())
        if digits in KEPT_MACS:
            return found[0]
        name = self._named("macs", digits)
        return name if len(found[0]) > 12 else name.replace(":", "")

    def _uuid(self, found: re.Match[str]) -> str:
        value = found[0].lower()
        return value if value.startswith("00000000-0000-4000-8000-") else self._named("ids", value)

    def _ip(self, found: re.Match[str]) -> str:
        if _VERSION.search(found.string, 0, found.start()):
            return found[0]
        try:
            address = ipaddress.ip_address(found[0])
        except ValueError:
            return found[0]
        if self._keeps(address) or any(
            address in network for network in KEPT_NETWORKS if network.version == address.version
        ):
            return found[0]
        free = self._free[address.version]
        return self._named("addresses", str(address), lambda _: next(free))

    def _path(self, found: re.Match[str]) -> str:
        folder = found[0][: -len(found[2]) - 1]
        return f"{self._named('paths', folder)}/{found[2]}"

    def _date(self, found: re.Match[str]) -> str:
        month = f"{found[1]}-{found[2]}-01"
        self._named("dates", found[0], lambda _: month)
        return f"{month}T00:00:00+00:00" if len(found[0]) > 10 else month

    @cached_property
    def _free(self) -> Mapping[int, Iterator[str]]:
        """Addresses of documentation that no packet of the experiment has."""

        def free(version: int) -> Iterator[str]:
            every = (_address(number, version) for number in itertools.count(1))
            return (text for text in every if not self._keeps(ipaddress.ip_address(text)))

        return {version: free(version) for version in (4, 6)}

    @cached_property
    def _ranges(self) -> list[tuple[int, int, int]]:
        return [found for text in self.kept_addresses for found in _range(text)]

    def _keeps(self, address: Address) -> bool:
        """Whether packets of the experiment may have it."""
        number = int(address)
        return any(
            version == address.version and low <= number <= high
            for version, low, high in self._ranges
        )


def packet_addresses(value: object) -> Iterator[str]:
    """The addresses, and ranges of them, that parameters of a run give to packets."""
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from packet_addresses(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from packet_addresses(inner)
    elif isinstance(value, str) and (_IPV4.match(value) or _IPV6.match(value)):
        yield value


def _range(text: str) -> Iterator[tuple[int, int, int]]:
    """Version, first and last number of ``10.0.0.1`` or ``10.0.0.1-10.0.0.9``; none of others."""
    first, _, last = text.partition("-")
    with contextlib.suppress(ValueError):
        begin, end = (ipaddress.ip_address(one.strip()) for one in (first, last or first))
        if begin.version == end.version:
            yield begin.version, int(begin), int(end)


def _kind_of(key: str) -> RedactedKind | None:
    known = FIELDS.get(key.lower())
    numbers = (kind for kind, form in _NUMBER_FIELDS if form.fullmatch(key))
    return known or next(numbers, None)


def _holds_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _holds_text(kind.value_type)
    if pa.types.is_nested(kind):
        return any(_holds_text(kind.field(place).type) for place in range(kind.num_fields))
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
