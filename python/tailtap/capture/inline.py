"""eBPF programs on links of their own on both sides of the DuT, by ``tailtap tap``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from tailtap.host import Host
from tailtap.host.process import STOP_SECONDS, Process
from tailtap.topology.lab import FORWARD, Way

MAX_ROOM = 4 * 2**20
"""Stamps that the kernel keeps at most for each side (64 MiB); the tap empties it all the time."""
QUIET_SHARE = 4
"""While less than a quarter of its room is used, the tap writes nothing and disturbs nobody."""
READY_SECONDS = 30.0
"""How long loading the programs and reserving room for the stamps may take."""


class InlineTap:
    """One process that stamps ingress packets and hands them on, and absorbs egress packets."""

    def start(self, host: Host, folder: Path, packets: int, way: Way = FORWARD) -> Process:
        """Start the taps and wait until they are attached. Raises `MachineError`."""
        room = min(packets * QUIET_SHARE, MAX_ROOM)
        command = [*host.program, "tap"]
        command += [f"ingress={way.ingress}:{way.onward}", f"egress={way.egress}:drop"]
        command += ["--write", str(folder / "{link}.stamps"), "--records", str(room), "--json"]
        process = host.start(command)
        try:
            process.expect("ready", READY_SECONDS)
        except BaseException:
            process.close()
            raise
        return process

    def stop(self, process: Process) -> dict[str, Any]:
        """Let the taps write what they hold, and end them. Raises `MachineError`."""
        process.interrupt()
        done = process.expect("done", STOP_SECONDS)
        process.close()
        links = cast("dict[str, Any]", done["links"])
        # Relative to the run folder, so that the folder can be moved.
        return {name: {**link, "file": Path(link["file"]).name} for name, link in links.items()}
