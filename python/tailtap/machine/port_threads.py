"""Ports that are polled by kernel threads of their own: threaded NAPI.

Documentation/networking/napi.rst of the kernel: threaded. A veth port is only polled with generic
receive offload on, and then only for packets of a peer that cannot send segments to be cut
(veth_skb_is_eligible_for_gro in drivers/net/veth.c), or while an XDP program is attached to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tailtap.errors import MachineError
from tailtap.machine.resource import Resource, Value
from tailtap.stations import CommandFailed, Host
from tailtap.stations.local import LocalHost
from tailtap.stations.namespace import NamespaceHost

# The kernel threads of a port are called napi/PORT-NUMBER; 15 characters are kept. Behind the name,
# the 17th word of stat is how nice it is; proc_pid_stat(5).
_THREADS = """port=$1
for folder in /proc/[0-9]*; do
    read -r name < "$folder/comm" 2> /dev/null || continue
    case $name in napi/"$port"-*) ;; *) continue ;; esac
    read -r stat < "$folder/stat" 2> /dev/null || continue
    set -- ${stat##*) }
    echo "${folder#/proc/}" "${17}"
done"""
# Like the softirq that it replaces, such a thread has priority over other work.
URGENT = -20
_FILE = "/sys/class/net/{port}/threaded"


def poll_in_threads(host: Host, port: str, cpus: str) -> Sequence[str]:
    """Have `port` polled by threads on `cpus`, a list; empty: on any. The threads' numbers.

    Raises `MachineError` when this kernel cannot (before Linux 5.12), or nothing polls the port.
    """
    kernel = _kernel_of(host)
    reason = "there is no such thread"
    try:
        before = _threads(kernel, port)
        _write(host, port, "1")
        # Other measurements have ports of the same name; their threads are urgent. Before Linux
        # 6.17 a card's threads stay when they are switched off, and are used again.
        made = set(_threads(kernel, port)) - set(before)
        found = sorted(made or {one for one, nice in before.items() if nice != URGENT})
        for thread in found:
            kernel.run(["renice", "-n", str(URGENT), "-p", thread])
            if cpus:
                kernel.run(["taskset", "--pid", "--cpu-list", cpus, thread])
        if found:
            return found
    except CommandFailed as error:
        reason = error.reason
    where = f" on CPUs {cpus}" if cpus else ""
    raise MachineError(
        f"{port} of {host.name} cannot be polled by threads{where} (threaded NAPI, Linux 5.12): "
        f"{reason}"
    )


def _kernel_of(host: Host) -> Host:
    """Where the kernel's threads are seen: a container shares the kernel and does not see them."""
    return host if host.own_kernel else LocalHost()


def _threads(kernel: Host, port: str) -> dict[str, int]:
    """How nice the threads of all ports of this name are, in whatever namespace."""
    told = kernel.run(["sh", "-c", _THREADS, "threads", port]).stdout
    rows = (line.split() for line in told.splitlines())
    return {thread: int(nice) for thread, nice in rows}


def _write(host: Host, port: str, value: str) -> None:
    file = _FILE.format(port=port)
    host.run(["sh", "-c", 'echo "$1" > "$2"', "threaded", value, file])


@dataclass(frozen=True)
class PortThreads(Resource):
    """Threads that poll a port of the lab, and nothing else, on `cpus`."""

    kind: ClassVar[str] = "port threads"

    namespace: str
    port: str
    cpus: str
    """As a list; empty: on any."""
    peer_namespace: str | None = None
    peer: str | None = None
    """The other end of a veth pair; None for a network card."""

    @property
    def label(self) -> str:
        """The port."""
        return f"threads of {self.namespace}/{self.port}"

    def read(self) -> dict[str, str]:
        """Whether threads poll it; nothing when it is gone."""
        file = _FILE.format(port=self.port)
        told = NamespaceHost(self.namespace).run(["cat", file], check=False).stdout.strip()
        return {"threaded": told} if told else {}

    def plan(self) -> dict[str, str]:
        """They do."""
        return {"threaded": "1"}

    def apply(self) -> dict[str, Any]:
        """Make a veth port one that is polled, and have it polled: the `threads`.

        Raises `MachineError`.
        """
        host = NamespaceHost(self.namespace)
        if self.peer is not None and self.peer_namespace is not None:
            # They go with the pair, which is the lab's own.
            host.run(["ethtool", "-K", self.port, "gro", "on"])
            NamespaceHost(self.peer_namespace).run(["ethtool", "-K", self.peer, "tso", "off"])
        return {"threads": list(poll_in_threads(host, self.port, self.cpus))}

    def undo(self, old: Mapping[str, str], applied: Mapping[str, Any] | None = None) -> str | None:
        """Have it polled as before."""
        if not self.pending(old):
            return None
        for thread in (applied or {}).get("threads", ()):
            # They are as nice as others again, should they stay.
            LocalHost().run(["renice", "-n", "0", "-p", thread], check=False)
        _write(NamespaceHost(self.namespace), self.port, old["threaded"])
        return None

    def pending(self, old: Mapping[str, str], applied: Value = None) -> bool:
        """Whether it is there and polled otherwise."""
        return self.read().get("threaded", old.get("threaded")) != old.get("threaded")
