"""A DuT that stands in a lab, without a forwarder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tailtap.lab.platforms import PLATFORMS, Dut, DutSpec, alike, build, graph_of
from tailtap.lab.topology.lab import Lab


@contextmanager
def standing(platform: str, spec: DutSpec[Any]) -> Iterator[tuple[Lab, Dut]]:
    """The lab of a DuT on `platform`, its links up, and the DuT."""
    kind = PLATFORMS[platform]
    with Lab(graph_of(alike(kind, spec))) as lab:
        [device] = build(lab, alike(kind, spec))
        lab.wait_until_up()
        yield lab, device
