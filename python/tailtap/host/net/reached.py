"""Ways in which a container's port is reached that is not the end of a link itself.

```
macvlan   link ── lower ─ macvlan: the port
bridge    link ── lower ─ bridge ─ veth ── the port
netkit    link ── lower ─ bridge ─ netkit ── the port
```

What lies in between is in a namespace of its own, as it would be the host's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tailtap.base.errors import MachineError
from tailtap.host.changes.resource import Resource, Value
from tailtap.host.net.namespaces import batch, ports
from tailtap.remote.local import LocalHost

MACVLAN, BRIDGE, NETKIT = "macvlan", "bridge", "netkit"
TRIALS = {
    MACVLAN: "ip link add tt-0 type veth && ip link add link tt-0 name tt-1 type macvlan",
    BRIDGE: "ip link add tt-1 type bridge",
    NETKIT: "ip link add tt-1 type netkit mode l2",
}
"""What makes one of each way, in a namespace that ends with the process."""
UNKNOWN_TO_IP = "Garbage instead of arguments"
"""What ip(8) says of the options of a kind that it does not know."""


@dataclass(frozen=True)
class Reached(Resource):
    """A port that is reached through something else, which `lower` belongs to."""

    kind: ClassVar[str] = "reached"

    way: str
    below: str
    """The namespace of what lies in between."""
    lower: str
    """The end of the link, there."""
    namespace: str
    port: str
    index: int
    """The number of the port."""
    mtu: int
    address: str = ""
    """The hardware address of the port; empty for one by chance."""

    @property
    def label(self) -> str:
        """The port, behind its namespace, and how it is reached."""
        return f"{self.namespace}/{self.port} by {self.way}"

    def read(self) -> bool:
        """Whether the port is there."""
        return self.port in ports(self.namespace)

    def plan(self) -> Value:
        """It is there."""
        return True

    def apply(self) -> None:
        """Make it, up. Raises `CommandFailed`."""
        named = f"name {self.port} netns {self.namespace} index {self.index} mtu {self.mtu}"
        named += f" address {self.address}" if self.address else ""
        commands = [f"link set dev {self.lower} up"]
        if self.way == MACVLAN:
            # The only one on its lower interface: it has all that comes in there.
            commands += [f"link add link {self.lower} {named} type macvlan mode passthru"]
        else:
            commands += [
                f"link add {self._bridge} mtu {self.mtu} type bridge stp_state 0 mcast_snooping 0",
                f"link set dev {self.lower} master {self._bridge}",
                f"link add {self._beside} mtu {self.mtu} type {self._pair} peer {named}",
                f"link set dev {self._beside} master {self._bridge}",
                f"link set dev {self._beside} up",
                f"link set dev {self._bridge} up",
            ]
        batch(commands, self.below)
        batch([f"link set dev {self.port} up"], self.namespace)

    def undo(self, old: Value, applied: Value = None) -> None:
        """It goes with its namespaces, which are the lab's, all at once.

        One after the other, each would wait until no CPU looks at it any more.
        """

    @property
    def _pair(self) -> str:
        """The kind of the pair behind the bridge; frames pass a netkit in its mode l2 alone."""
        return "netkit mode l2" if self.way == NETKIT else "veth"

    @property
    def _bridge(self) -> str:
        return f"{self.lower}b"

    @property
    def _beside(self) -> str:
        return f"{self.lower}m"


def require_way(way: str) -> None:
    """Raises `MachineError` for a kernel that cannot, and for an older iproute2."""
    done = LocalHost().run(["unshare", "--net", "sh", "-ec", TRIALS[way]], check=False)
    if done.status == 0:
        return
    if UNKNOWN_TO_IP in done.stderr:
        raise MachineError(
            f"dut.over: {way}: this machine's ip makes none: it needs iproute2 6.7 or newer "
            "(Debian bookworm has one in its backports) and a kernel with "
            f"CONFIG_{way.upper()}; leave dut.over out"
        )
    raise MachineError(
        f"dut.over: {way}: this kernel makes none ({' '.join(done.stderr.split())}): it needs "
        f"CONFIG_{way.upper()}; leave dut.over out"
    )
