"""What `tailtap generate`, `tap`, `forward` and `trace` refuse, each in one line."""

from __future__ import annotations

import ctypes.util
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import without_af_xdp
from captures import pcap, stamps
from frames import tcp_frame, udp_frame
from namespaces import TAILTAP, Namespace

LINKS = """
ip link add asleep type veth peer name awake
ip link set lo up
ip link set out mtu 9000
ip tuntap add tun0 mode tun
ip link set tun0 up
"""
Case = tuple[str, int, str]
SENT = "--rate '1 kpkt/s' --count 1"
XDP = "--generator af_xdp"
GENERATE: list[Case] = [
    ("--pattern burst", 2, "packets"),
    ("--pattern burst:packets=x", 2, "packets: 'x' is wrong, wanted: a whole number"),
    ("--pattern wave", 2, "known: constant, burst"),
    ("--pattern 'ramp:to=1 Mpkt/s'", 2, "over=10 s"),
    ("--src 10.0.0.1 --flows 2", 2, "--flows or --src"),
    ("--src fd00::1", 2, "IPv4"),
    ("--ip 5", 2, "--ip 4 or 6"),
    ("--ip 6", 2, "71 B"),
    ("--vlan 9 --ip 6 --size '74 B'", 2, "75 B"),
    ("--sport 9-8", 2, "empty"),
    ("--warm-up '1 s' --warm-up-packets 1", 2, "--warm-up or --warm-up-packets"),
    ("--size '64 B,'", 2, "not a size"),
    ("--size '63 B'", 2, "--size"),
    ("--size '64 B' --ip 6", 2, "71 B"),
    ("--size '1519 B'", 2, "MTU"),
    ("--flows 65535", 2, "65534"),
    ("--flows 0", 2, "--flows"),
    ("--duration '1 s'", 2, "--duration or --count"),
    ("--cpu 999", 2, "--cpu"),
    ("--src-mac 1:2:3", 2, "hardware address"),
    (f"{XDP} --no-bypass", 2, "--no-bypass"),
]
"""What is typed behind a rate and a count of packets."""
TAP: list[Case] = [
    ("tt-none --write x.stamps", 2, "no interface 'tt-none'"),
    ("lo --write x.stamps", 2, "interface lo is not Ethernet"),
    (
        "in --clock hardware --write x.stamps",
        3,
        "in cannot stamp every received packet in hardware",
    ),
    ("in --clock hardware --write x.stamps", 3, "stamps in software only (no hardware-receive)"),
    ("in gen --write x.stamps", 2, "{link}"),
    ("in: --write x.stamps", 2, "is not a link"),
    ("@egress --write x.stamps", 2, "is not a link"),
    ("/in --write x.stamps", 2, "is not a link"),
    ("in:in --write x.stamps", 2, "loop"),
    ("in:dev: --write x.stamps", 2, "is not a link"),
    ("in@receipt:gen --write x.stamps", 2, "leave :gen out, or @receipt"),
    ("in@receipt:drop --write x.stamps", 2, "leave :drop out, or @receipt"),
    ("in in:drop --write {link}.stamps", 2, "two links"),
    ("in --write x.stamps --records 0", 2, "--records"),
    ("in --write x.stamps --cpu 4000", 2, "--cpu"),
    ("in --write x.stamps --duration 3", 2, "3 has no unit"),
    ("in --write x.stamps --clock hardwear", 2, "'hardwear' is not one of"),
    ("in --write x.stamps --key signature", 2, "not a key of a tap"),
    ("in --write x.stamps --key 40:5:le", 2, "1 to 4 bytes"),
    ("in --write x.stamps --snap-length '64 B'", 2, "--snap-length"),
    ("in --write x.stamps --rotate 3", 2, "'1 GB' or '10 min'"),
    ("in --write x.stamps --rotate '0 s'", 2, "--rotate"),
    ("in --write x.stamps --rotate '1 s' --rotate '2 s'", 2, "--rotate"),
    ("in --write x.pcap --snap-length '0 B'", 2, "--snap-length"),
    ("in --write x.pcap --snap-length '64 KiB'", 2, "--snap-length"),
    ("in --write x.pcap --key 40:4:le", 2, "--key"),
    ("in --write x.pcapng", 2, "--format"),
    ("in --write x.pcap --format mscap", 2, "stamps"),
    ("in --write /tt-none/x.stamps", 3, "/tt-none/x.stamps"),
    ("in --write /proc/x.pcap", 3, "/proc/x.pcap"),
    ("in --write '/proc/{link}.pcap' --rotate '1 MB'", 3, "/proc/in-00001.pcap"),
    (
        "in --write x.pcap --snap-length '65535 B' --records 67108864",
        3,
        "no memory for 67108864 records of 65560 B",
    ),
    # In other namespaces.
    ("tt-none/in --write x.stamps", 2, "no network namespace 'tt-none'"),
    ("/proc/self/status/in --write x.stamps", 3, "cannot work in network namespace"),
    # By cards and sockets.
    ("tt-none --write x.stamps --clock hardware", 2, "no interface 'tt-none'"),
    ("tt-none --write x.stamps --clock software", 2, "no interface 'tt-none'"),
    ("in:gen --write x.stamps --clock software", 2, "forwards nothing"),
    ("in@egress --write x.stamps --clock software", 2, "forwards nothing"),
    ("in:drop --write x.stamps --clock software", 2, "leave :drop out"),
    ("in --write x.stamps --clock software --cost", 2, "--cost"),
    ("in --write x.stamps --clock software --records 5", 2, "--records"),
    ("in --write x.stamps --clock software --cpu 4000", 2, "--cpu"),
    # What is down.
    ("asleep --write x.stamps --clock software", 2, "ip link set asleep up"),
    ("asleep --write x.stamps", 2, "asleep is down: bring it up with `ip link set asleep up`"),
    ("in:asleep --write x.stamps", 2, "asleep is down: bring it up with `ip link set asleep up`"),
    # Marks and filters.
    ("in --write x.marks", 2, "give --hash packet-nat"),
    ("in --write x.marks --hash signature", 2, "--hash signature is not possible"),
    ("in --write x.marks --hash nonsense", 2, "--hash: 'nonsense' is not a key"),
    ("in --write x.marks --hash packet --sample 1/3", 2, "3 is no power of two"),
    ("in --write x.marks --hash packet --sample 1/131072", 2, "a sample of 1/131072"),
    ("in --write x.marks --hash ip.id --sample 1/2", 2, "'ip.id' is not found there"),
    ("in --write x.marks --hash packet --behind out", 2, "the links are in"),
    ("in --write x.pcap --budget 2%", 2, "--budget is for"),
    ("in --write x.pcap --hash packet", 2, "--hash is of"),
    ("tun0 --write x.stamps --key 42:4:le", 2, "packets of tun0 begin with IP"),
]
FILTERS: list[Case] = [
    ("in --write x.marks --hash packet --filter 'prot 5'", 2, "--filter 'prot 5': "),
    (
        "tun0 --write x.marks --hash packet --filter 'ether broadcast'",
        2,
        "what only frames of Ethernet have",
    ),
]
"""Those that libpcap compiles."""
OTHERS: list[Case] = [
    ("generate gen --rate '1 kpkt/s'", 2, "--duration or --count"),
    ("generate gen --rate '1 kpkt/s' --duration '0 s'", 2, "--duration"),
    (f"generate out {SENT} {XDP} --size '4101 B'", 2, "--generator af_packet"),
    (f"generate lo {SENT}", 2, "interface lo is not Ethernet: choose another one\n"),
    (f"generate lo {SENT} {XDP}", 2, "interface lo is not Ethernet: choose another one\n"),
    (f"generate asleep {SENT}", 2, "ip link set asleep up"),
    ("forward asleep in", 2, "ip link set asleep up"),
    ("forward gen gen", 2, "two interfaces"),
    ("forward gen tt-none", 2, "tt-none"),
    ("forward gen in --hold 1,x", 2, "--hold"),
    ("forward gen in --drop 4294967296", 2, "--drop"),
    ("trace --out x --cpus 4095", 2, "CPU 4095 cannot be traced"),
    ("trace --out x --cpus 1 --records 0", 2, "0 records are not possible"),
    ("trace --out x --cpus 1 --mode thick", 2, "'thick' is not one of"),
]


@pytest.fixture
def links(namespace: Namespace) -> Namespace:
    """A namespace with a cable that is down besides, one for large frames, and a tun device."""
    namespace.run("sh", "-ec", LINKS)
    return namespace


def test_words_that_do_not_go_together(links: Namespace) -> None:
    before = sorted(Path("/").iterdir())
    taps = TAP + (FILTERS if ctypes.util.find_library("pcap") is not None else [])
    links.refuses(
        *((f"generate gen {SENT} {words}", status, said) for words, status, said in GENERATE),
        *((f"tap {words}", status, said) for words, status, said in taps),
        *OTHERS,
    )
    assert sorted(Path("/").iterdir()) == before


ONE = pcap([(0, udp_frame(1))])
REPLAYED: list[tuple[bytes, str, str]] = [
    (pcap([(0, tcp_frame())]), "--stamp-ids", "no packet is UDP"),
    (pcap([(0, udp_frame(1))], snap=30), "", "packet 1 was cut off to 30 of 60 B"),
    (pcap([]), "", "there is no packet"),
    (ONE, "--count 2 --rate '1 pkt/s'", "--stamp-ids"),
    (ONE, "--warm-up-packets 1", "a warm-up needs ids of its own"),
    (ONE, "--vlan 5", "--vlan does not go with --replay"),
    (ONE, "--pattern poisson", "--pattern needs a --rate"),
    (pcap([(0, udp_frame(1) + bytes(1500))]), "", "its MTU of 1500 B"),
    (pcap([(0, udp_frame(1)), (1, udp_frame(2))])[:-5], "", "damaged after packet 1"),
    (stamps([(1, 1)]), "", "holds stamps"),
]
"""Captures, what is typed, and what is said."""


def test_captures_that_cannot_be_replayed(links: Namespace, tmp_path: Path) -> None:
    refused = [(f"generate gen --replay {tmp_path}/none", 2, "No such file")]
    for number, (content, words, said) in enumerate(REPLAYED):
        capture = tmp_path / f"{number}.pcap"
        capture.write_bytes(content)
        refused.append((f"generate gen --replay {capture} {words}", 2, said))
    links.refuses(*refused)


BARE = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", TAILTAP)
UNLOCKED = (
    *("prlimit", "--memlock=65536", "setpriv", "--bounding-set=-ipc_lock"),
    *("--inh-caps=-ipc_lock", TAILTAP),
)
WITHOUT = (sys.executable, without_af_xdp.__file__, TAILTAP)
"""On what is to the command a kernel without AF_XDP."""
SEND = ("generate", "gen", "--rate", "1 kpkt/s", "--count", "1")


@pytest.mark.parametrize(
    ("program", "words", "said"),
    [
        (BARE, ("tap", "in", "--write", "x.stamps"), ["run as root"]),
        (BARE, SEND, ["run as root"]),
        (BARE, (*SEND, *XDP.split()), ["run as root"]),
        (BARE, ("forward", "gen", "in"), ["run as root"]),
        (UNLOCKED, (*SEND, *XDP.split()), ["64 KiB are allowed", "ulimit -l 16384"]),
        (
            WITHOUT,
            (*SEND, *XDP.split()),
            [
                "this kernel has no AF_XDP (CONFIG_XDP_SOCKETS, Linux 5.4)",
                "--generator af_packet\n",
            ],
        ),
    ],
)
def test_what_the_machine_does_not_allow(
    links: Namespace, program: Sequence[str], words: Sequence[str], said: Sequence[str]
) -> None:
    done = links.run(*program, *words, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (3, 1), done.stderr
    assert all(one in done.stderr for one in said), done.stderr


def test_a_kernel_without_af_xdp_does_everything_else(links: Namespace) -> None:
    assert links.run(*WITHOUT, *SEND).returncode == 0


def test_a_time_namespace_is_refused(tmp_path: Path) -> None:
    """The kernel stamps by its own clock, and a program there would add another one's."""
    (tmp_path / "experiment.yaml").write_text(
        "name: shifted\ntraffic: {rate: 1 kpkt/s, duration: 1 s}\n"
    )
    for words in (
        ("run", "experiment.yaml"),
        ("run", "experiment.yaml", "--check"),
        ("tap", "lo", "--write", "lo.stamps"),
        ("trace", "--cpus", "0", "--out", ".", "--for", "1 s"),
    ):
        command = ["unshare", "--time", "--monotonic", "1000", "--fork", TAILTAP, *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 3, done.stderr
        assert "is in a time namespace, whose monotonic clock is ahead" in done.stderr
        assert not list(tmp_path.glob("*.stamps"))
