"""Machines as files: a small one, and recorded ones that tests unpack; what the audit finds there.

The small one has four cores and two cards, the first of which has the default route. A recorded one
is text, a line a file: ``path: content``; lines that begin with ``| `` go on with the content.
``{0-3}`` in a path stands for each of these numbers, ``{online}`` for each CPU that is online;
``{n}``, ``{n+32}`` and ``{n-32}`` in the content follow it. Comments say where the facts are from.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from tailtap.base.units import parse_cpus
from tailtap.host.changes.clean import resource_of
from tailtap.host.changes.journal import Entry
from tailtap.host.changes.kernel_values import chosen
from tailtap.host.changes.resource import Resource, Value
from tailtap.host.knobs import named
from tailtap.host.knobs.tree import Purpose, Tree
from tailtap.host.tuning.apply import judge
from tailtap.records.printed import AuditRow

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


FOLDER = Path(__file__).parents[1] / "unit/host/machines"
NAMES = ("intel-two-sockets", "amd-epyc-four-nodes", "raspberry-pi-4", "cloud-vm")
_RANGE = re.compile(r"\{([\d,-]+)\}")
_NUMBER = re.compile(r"\{n([+-]\d+)?\}")


def unpacked(name: str, folder: Path) -> Path:
    """The files of the machine `name`, written to `folder`; what it does not say is a default."""
    own = _rows((FOLDER / f"{name}.txt").read_text())
    online = own["/sys/devices/system/cpu/online"]
    files: dict[str, str] = {}
    for rows in (_rows((FOLDER / "defaults.txt").read_text()), own):
        for pattern, content in rows.items():
            files.update(_each(pattern.replace("{online}", f"{{{online}}}"), content))
    for path, content in files.items():
        file = folder / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{content}\n")
    return folder


def _rows(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    path = ""
    for line in text.splitlines():
        if line.startswith("| "):
            found[path] += f"\n{line[2:]}"
        elif line and not line.startswith("#"):
            path, _, content = line.partition(":")
            assert path not in found, f"{path} is there twice"
            found[path] = content.strip()
    return found


def _each(pattern: str, content: str) -> dict[str, str]:
    match = _RANGE.search(pattern)
    if match is None:
        return {pattern: content}
    return {
        pattern.replace(match[0], str(number)): _numbered(content, number)
        for number in parse_cpus(match[1])
    }


def _numbered(content: str, number: int) -> str:
    return _NUMBER.sub(lambda match: str(number + int(match[1] or 0)), content)


def judged(name: str, tree: Tree, purpose: Purpose) -> AuditRow:
    knob = named(name)
    assert knob is not None
    return judge(knob, tree, purpose)


def retold(made: Resource, old: Value) -> Resource:
    """The change as a later process reads it, which has nothing but the line of the journal."""
    entry = Entry(1, made.kind, made.label, old, made.plan(), made.as_json())
    again = resource_of(Entry(**json.loads(json.dumps(entry.__dict__))))
    assert again == made
    return again
