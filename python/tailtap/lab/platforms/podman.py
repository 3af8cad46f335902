"""`podman`: the DuT is a container of Podman, whose command line is Docker's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from tailtap.base.check import Findings
from tailtap.host.containers.container import Engine
from tailtap.host.containers.podman import PODMAN, runtime
from tailtap.lab.platforms.contained import ContainerPlatform
from tailtap.lab.platforms.dut import DutSpec
from tailtap.records.machine import BUILT_IN, Traits


class Podman(ContainerPlatform):
    """Podman: images, storage and a monitor for each container, without a daemon."""

    name: ClassVar[str] = "podman"
    summary = "A container of Podman, privileged, which crun or runc runs for it."
    documentation = (
        "It has this machine's files in place of an image, and no network of Podman's; the rest is "
        "as with `container`. Podman keeps all it needs in the container's own folder. Needs the "
        "Debian packages podman and crun."
    )
    remedy: ClassVar[str] = "apt-get install podman crun, on a kernel with cpuset control groups"
    engine: Engine = PODMAN
    traits: Traits = BUILT_IN["podman"]

    def foresee(
        self,
        spec: DutSpec[Any],
        cards: Sequence[str],
        programs: Sequence[str],
        findings: Findings,
    ) -> None:
        super().foresee(spec, cards, programs, findings)
        findings.ask(runtime)
