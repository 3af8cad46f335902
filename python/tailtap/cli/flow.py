"""A flow of `tailtap generate`: its options as text, checked and understood."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import msgspec

from tailtap.base.errors import InputError, naming
from tailtap.cli.command import refuse
from tailtap.lab.generators.flows import (
    DEFAULT_TTL,
    Flows,
    Ranges,
    least_size,
    numbered,
    parse_sizes,
    sizes_of,
)
from tailtap.lab.generators.pattern import parse_pattern
from tailtap.records.datapath import GeneratorRecord

DEFAULT_SIZE = "64 B"
AS_THEY_ARE = "its packets are as they are"


class FlowOptions(SimpleNamespace):
    """The options of one flow, as `tailtap generate` declares them."""

    def sending(self) -> Any:
        """The flow as `tailtap._core.generate` takes it.

        Raises `InputError` for options that say nothing, or contradict each other.
        """
        self._check()
        length = None if self.duration is None else ("ns", self.duration)
        if self.count is not None:
            length = ("packets", self.count)
        warm_up = ("packets", self.warm_up_packets)
        if self.warm_up is not None:
            warm_up = ("ns", self.warm_up)
        with naming("--size"):
            sizes = parse_sizes(self.size)
        return {
            "interface": self.interface,
            "rate": self.rate,
            "pattern": parse_pattern(self.pattern).values(self.duration),
            "sizes": sizes_of(sizes, least_size(self.ip, self.vlan is not None)),
            **self._ranges()._asdict(),
            "vlan": self.vlan,
            "time_to_live": self.ttl or DEFAULT_TTL,
            "source_mac": parse_mac(self.src_mac),
            "destination_mac": parse_mac(self.dst_mac),
            "replay": None if self.replay is None else (self.replay, self.stamp_ids),
            "length": length,
            "warm_up": warm_up,
            "pause_ns": self.pause,
            "back_end": self.generator,
            "bypass": not self.no_bypass,
        }

    def report(self, told: Mapping[str, Any]) -> GeneratorRecord:
        """What the sender `told`, with what was asked."""
        return msgspec.convert({**told, **self._shown()}, GeneratorRecord)

    def _shown(self) -> dict[str, Any]:
        shape = parse_pattern(self.pattern)
        if self.replay is not None:
            own_pace = {"kind": "recorded"} if self.rate is None else shape.model_dump()
            content: dict[str, Any] = {"replay": str(self.replay), "stamp_ids": self.stamp_ids}
            return {"generator": self.generator, "pattern": own_pace, **content}
        return {
            "generator": self.generator,
            "pattern": shape.model_dump(),
            "size": parse_sizes(self.size),
            "flows": self._ranges().flows,
            "ip": self.ip,
            "vlan": self.vlan,
            "ttl": self.ttl or DEFAULT_TTL,
        }

    def _check(self) -> None:
        once = "how much to send must be said once: give --duration or --count"
        again = self.replay is not None
        refuse(
            (self.duration is not None and self.count is not None, once),
            (not again and self.duration is None and self.count is None, once),
            (
                not again and (self.rate is None or self.stamp_ids),
                "without --replay, --rate is needed and --stamp-ids is not",
            ),
            *(
                (again and value is not None, f"{option} does not go with --replay: {AS_THEY_ARE}")
                for option, value in self._content().items()
            ),
            (
                again and self.rate is None and self.pattern != "constant",
                "--pattern needs a --rate: without one, a --replay has its own pace",
            ),
            (
                self.warm_up is not None and self.warm_up_packets,
                "the warm-up must be said once: give --warm-up or --warm-up-packets",
            ),
            (
                self.no_bypass and self.generator != "af_packet",
                "--no-bypass is for --generator af_packet: the others pass no queue",
            ),
            (self.ip == 5, "there is no IPv5: give --ip 4 or 6"),
            (
                self.flows is not None and self.src is not None,
                "the source addresses must be said once: give --flows or --src",
            ),
        )

    def _content(self) -> dict[str, object]:
        """What says what packets are like, and None where it was not given."""
        names = ("flows", "src", "dst", "sport", "dport", "vlan", "ttl")
        size = None if self.size == DEFAULT_SIZE else self.size
        return {**{f"--{name}": getattr(self, name) for name in names}, "--size": size}

    def _ranges(self) -> Ranges:
        version: Any = self.ip
        with naming("--flows"):
            sources = self.src if self.flows is None else numbered(self.flows, version).src
        flows = Flows(src=sources, dst=self.dst, sport=self.sport, dport=self.dport)
        return flows.ranges(version)


def parse_mac(text: str) -> bytes:
    """The six bytes of a hardware address such as ``02:74:74:00:00:01``.

    Raises `InputError` when the text is none.
    """
    parts = text.split(":")
    try:
        address = bytes(int(part, 16) for part in parts)
    except ValueError:
        address = b""
    if len(address) != 6 or any(len(part) != 2 for part in parts):
        raise InputError(f"{text!r} is not a hardware address: write it as 02:74:74:00:00:01")
    return address
