"""Every platform with every forwarder: no packet is lost. New kinds join by themselves.

`test_forwarders` has them on bare metal, in whole runs. A DuT takes long to start, so that all
forwarders share one of each platform.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from forwarders import require
from labtools import ids_of, received, wait_for
from program import TAILTAP
from standing import Shared

from tailtap.lab.forwarders import FORWARDERS, Setting
from tailtap.lab.forwarders.own import Forwarding
from tailtap.lab.generators import GENERATORS, Sending
from tailtap.lab.generators.model import Traffic
from tailtap.lab.instruments.taps.kinds import TAPS, Stamped
from tailtap.lab.platforms import PLATFORMS, DutSpec
from tailtap.lab.topology.graphs import FORWARD

EXTERNAL = {"command": f"{TAILTAP} forward {{ingress}} {{egress}} --cpu {{cpu}}"}
COUNTS = Path(__file__).parent / "counting.nft"
OPTIONS: dict[str, dict[str, str]] = {"external": EXTERNAL, "nftables": {"rules": str(COUNTS)}}
"""What a forwarder cannot do without."""
PASSING = [name for name, kind in FORWARDERS.items() if kind.serves != "clients"]
"""Servers answer, and pass nothing on: `test_transactions` has them."""
ELSEWHERE = ("bare-metal", "runc", "podman")
"""The last two start the same container as crun does: `test_images` has them."""
OTHERS = [name for name, kind in PLATFORMS.items()
          if kind.traits.has_dut and name not in ELSEWHERE]  # fmt: skip
BOOTS = [name for name in OTHERS if PLATFORMS[name].traits.own_kernel]
"""Platforms whose DuT boots a kernel of its own."""
TRAFFIC = Traffic.model_validate({"rate": "2 kpkt/s", "duration": "500 ms", "warm_up": "100 ms"})
SETTLE_SECONDS = 0.1
"""How long those may be under way that come as copies or from elsewhere."""

# What forwarders in the kernel leave behind, which usually goes with the DuT.
AS_BOOTED = """
tc qdisc del dev "$1" clsact 2> /dev/null
ip rule del iif "$1" 2> /dev/null
ip route flush table 7474 2> /dev/null
ip link del dev tt-br 2> /dev/null
nft flush ruleset 2> /dev/null
echo 0 > /proc/sys/net/ipv4/ip_forward
echo 0 > /sys/class/net/"$1"/threaded
exit 0
"""


MARKS = {"container": [], **{one: [pytest.mark.slow, pytest.mark.timed] for one in BOOTS}}
"""CI has the other containers in `test_containers` and `test_images`, and guests in whole runs. The
CPU of a guest is emulated, and may not keep up."""
SHARED = [pytest.param(one, marks=MARKS.get(one, pytest.mark.slow)) for one in OTHERS]


@pytest.fixture(scope="module", params=SHARED)
def shared(request: pytest.FixtureRequest) -> Iterator[Shared]:
    spec = DutSpec((1,), PLATFORMS[request.param].Options())
    with Shared(request.param, spec) as made:
        yield made


@pytest.mark.usefixtures("huge_pages")
@pytest.mark.parametrize("forwarder", PASSING)
def test_no_packet_is_lost(shared: Shared, forwarder: str, tmp_path: Path) -> None:
    pass_through(shared, forwarder, tmp_path)
    assert ids_of(tmp_path) == list(range(TRAFFIC.packets))


def pass_through(shared: Shared, name: str, folder: Path) -> None:
    """Send `TRAFFIC` through the forwarder `name` in the DuT that is shared.

    The stamps go into `folder`, and the DuT is then as before. Skips the test where this machine
    lacks the forwarder.
    """
    require(name)
    lab, device = shared.lab, shared.device
    kind, generator, tap = FORWARDERS[name], GENERATORS["af_packet"], TAPS["inline"]
    with shared.in_use(), ExitStack() as stack:
        stack.callback(device.host.run, ["sh", "-c", AS_BOOTED, "as-booted", device.ingress])
        setting = Setting(lab, folder, {FORWARD: TRAFFIC})
        forwarding = kind.start(device, kind.Options.model_validate(OPTIONS.get(name, {})), setting)
        stack.callback(forwarding.close)
        flow = lab.graph.flow(FORWARD)
        sender, port = lab.host(flow.generator.node), flow.generator.name
        stamping = tap.start(lab.host(flow.ingress.node), folder, [Stamped(flow, TRAFFIC.packets)])
        stack.callback(stamping.close)
        before = received(lab, flow.egress)

        def comes_through() -> bool:
            generator.probe(sender, [Sending(port, TRAFFIC)])
            return received(lab, flow.egress) > before

        wait_for(comes_through, "a packet", device.patience * forwarding.ready_seconds)
        probed = received(lab, flow.egress)
        [sending] = generator.start(sender, [Sending(port, TRAFFIC)])
        stack.callback(sending.close)
        [told] = generator.result([sending])
        assert told.sent == TRAFFIC.packets
        # However long a CPU is held: what is not out yet is not lost.
        wait_for(lambda: received(lab, flow.egress) >= probed + TRAFFIC.packets, "all packets")
        time.sleep(SETTLE_SECONDS * device.patience + forwarding.holds_ns / 1e9)
        tap.stop(stamping)
        if isinstance(forwarding, Forwarding) and shared.platform in BOOTS:
            assert forwarding.cpu_time() is None  # the process that is seen here only stands for it
        forwarding.stop()
