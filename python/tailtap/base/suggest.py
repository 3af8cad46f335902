"""What a message says of a word that is not known."""

from __future__ import annotations

import datetime
import difflib
import json
from collections.abc import Iterable, Mapping, Sequence

_ENGINES = ("podman", "crun", "runc", "container")
_OF_OTHERS = ("external",)
_BENCHMARKS = ("iperf", "iperf3", "netperf", "moongen", "trex", "trafgen", "cisco-trex", "sockperf")

NEARLY: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(("docker", "k8s", "kubernetes", "containerd", "oci", "pod"), _ENGINES),
    **dict.fromkeys(("lxc", "lxd", "incus", "nspawn"), ("container",)),
    **dict.fromkeys(("kvm", "qemu", "libvirt", "virtual-machine", "guest", "firecracker"), ("vm",)),
    **dict.fromkeys(("none", "null", "veth", "cable", "no-dut"), ("wire",)),
    **dict.fromkeys(
        ("host", "native", "namespace", "netns", "baremetal", "metal", "linux"), ("bare-metal",)
    ),
    **dict.fromkeys(
        ("kernel", "linux", "router", "route", "ip", "ip-forward", "l3"), ("kernel-route",)
    ),
    **dict.fromkeys(("tc", "mirred", "l2"), ("tc-mirred",)),
    **dict.fromkeys(("linux-bridge", "brctl", "switch"), ("bridge",)),
    **dict.fromkeys(("openvswitch", "open-vswitch"), ("ovs", "ovs-dpdk")),
    **dict.fromkeys(("nft", "netfilter", "firewall", "iptables"), ("nftables",)),
    **dict.fromkeys(("dpdk",), ("testpmd", "dpdk-l2fwd", "dpdk-l3fwd")),
    **dict.fromkeys(("bpf", "ebpf", "af_xdp", "af-xdp"), ("xdp",)),
    **dict.fromkeys(("snort", "zeek", "ids", "ips"), ("suricata",)),
    **dict.fromkeys(
        ("vpp", "click", "fastclick", "nginx", "haproxy", "cilium"),
        _OF_OTHERS,
    ),
    **dict.fromkeys(_BENCHMARKS, _OF_OTHERS),
    **dict.fromkeys(("pktgen", "raw", "socket", "packet"), ("af_packet",)),
}
"""What others call kinds of ours, or what is nearest to them. A word may mean kinds of several
seams; `did_you_mean` takes those that are known where it stands."""


LONGEST_VALUE = 60
"""Characters of a wrong value that a message repeats."""


def shown(value: object) -> str:
    """A value of a file as whoever wrote it knows it, shortened where it is long."""
    if value is None:
        return "nothing"
    if isinstance(value, str):
        text = repr(value)
    elif isinstance(value, datetime.date):
        return f"the date {value}"
    else:
        text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown `word`: what is nearest to it, or all that is known."""
    words = list(known)
    meant = [
        name for name in NEARLY.get(word.strip().lower().replace(" ", "-"), ()) if name in words
    ]
    if meant:
        return f"take {' or '.join(meant)}"
    key, colon, value = word.partition(":")
    if colon and key in words:
        return f"write a blank behind the colon, '{key}: {value.strip()}'"
    close = difflib.get_close_matches(word, words, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known: {', '.join(words)}" if words else "there is none here"
