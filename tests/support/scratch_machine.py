"""A small machine as files: four cores, two cards, whose first one has the default route."""

from __future__ import annotations

import os
from pathlib import Path

from tailtap.host.changes.kernel_values import chosen

ROUTES = """Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT
eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0
eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
"""
FILES = {
    "proc/cmdline": "root=/dev/vda ro quiet",
    "proc/cpuinfo": "model name\t: A processor\nflags\t\t: fpu tsc",
    "proc/net/route": ROUTES,
    "proc/sys/kernel/hung_task_timeout_secs": "120",
    "proc/sys/vm/stat_interval": "1",
    "sys/devices/system/cpu/online": "0-3",
    "sys/devices/system/cpu/isolated": "",
    "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
}


def scratch_machine(folder: Path) -> Path:
    """Write the machine's files to `folder`."""
    files = dict(FILES)
    for card in ("eth0", "eth1"):
        files[f"sys/class/net/{card}/device/vendor"] = "0x8086"
        for queue in range(2):
            files[f"sys/class/net/{card}/queues/rx-{queue}/rps_cpus"] = "0"
            files[f"sys/class/net/{card}/queues/tx-{queue}/xps_cpus"] = "0"
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return folder


def state(folder: Path) -> dict[str, str]:
    """What all files of the machine say; of a choice, what is chosen."""
    found = {}
    for top in ("proc", "sys"):
        for below, _, names in os.walk(folder / top):
            for path in (f"{below}/{name}" for name in names):
                with open(path) as file:  # noqa: PTH123 - thousands of files
                    found[path.removeprefix(f"{folder}/")] = chosen(file.read())
    return found
