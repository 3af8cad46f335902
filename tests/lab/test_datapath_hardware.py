"""Stamps of cards and sockets, as far as links without a clock of their own allow.

No link here has hardware stamps: that they are refused is tested for real. The way of a stamp from
the kernel into the file is the same for the kernel's own stamps, and is tested with these.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from frames import send_frames, udp_frame
from namespaces import Namespace, Running
from stamps import read_stamps

SOFTWARE = ("--clock", "software")
REALTIME = 3


def by_metadata(
    namespace: Namespace,
    path: Path,
    stamper: str,
    *,
    absorb: bool = False,
    count: int | None = None,
) -> Running:
    """A tap on `in` through an XDP program, whatever the interface says that it can."""
    code = (
        "import json\n"
        "from tailtap import _core\n"
        "from tailtap.lab.instruments.taps.links import TapLink\n"
        f"link = (TapLink('in', 'in', absorb={absorb}), {str(path)!r}, 'metadata')\n"
        "ready = lambda: print(json.dumps({'event': 'ready'}), flush=True)\n"
        f"done = _core.stamp([link], {stamper!r}, ready, count={count})\n"
        "print(json.dumps(done, default=str))\n"
    )
    running = Running(namespace.inside(sys.executable, "-P", "-c", code))
    namespace.running.append(running)
    return running


@pytest.mark.apart
def test_a_socket_stamps_every_packet(namespace: Namespace, tmp_path: Path) -> None:
    before = time.time_ns()
    words = ("--rate", "20 kpkt/s", "--count", "20000", "--warm-up-packets", "50")
    sent = namespace.sent(tmp_path, *words, "--size", "64 B,1518 B", tap=SOFTWARE, link="in")
    after = time.time_ns()
    report, done = sent.report, sent.link
    assert (report["sent"], report["failed"]) == (20_000, 0)
    assert sent.counts == (20_000, 20_000, 0, 50)
    assert (done["clock"], done["unstamped"], done["warnings"]) == ("realtime", 0, [])
    counts, stamps = read_stamps(sent.path, clock=REALTIME)
    assert counts == sent.counts
    assert np.array_equal(stamps["id"], np.arange(20_000))
    # Only the first bytes of a packet are looked at, but its length is told.
    assert stamps["len"].tolist() == [60, 1514] * 10_000
    assert before < int(stamps["time"][0]) < int(stamps["time"][-1]) < after
    late = sent.since_due_ns(50_000)
    # The clocks differ by a constant; the packets are as late as the generator says, not more.
    slip = report["slip_ns"]
    spread = np.quantile(late, 0.5) - late.min()
    assert spread < slip["percentiles"][0]["value"] - slip["min"] + 1_000_000


def test_tags_count_and_foreign_packets_do_not(namespace: Namespace, tmp_path: Path) -> None:
    tap, path = namespace.tapped(tmp_path, *SOFTWARE, "--count", "3", link="in")
    tag = bytes.fromhex("81000005")
    frames = [udp_frame(1), udp_frame(2, tags=tag), udp_frame(3, ipv6=True)]
    send_frames(namespace, "gen", [bytes(60), *frames])
    done = json.loads(tap.ended()[0])["links"]["in"]
    assert (done["seen"], done["stored"], done["other"]) == (3, 3, 1)
    stamps = read_stamps(path, clock=REALTIME)[1]
    assert stamps["id"].tolist() == [1, 2, 3]
    assert stamps["len"].tolist() == [len(frame) for frame in frames[:3]]


@pytest.mark.apart
@pytest.mark.parametrize("absorb", [False, True])
def test_an_xdp_program_hands_over_every_packet(
    namespace: Namespace, tmp_path: Path, absorb: bool
) -> None:
    """The program is bound to the link and calls the driver, as it would for a card's stamps."""
    path = tmp_path / "in.stamps"
    # Who listens behind the program gets the packets, or gets none.
    count = () if absorb else ("--count", "20000")
    write = ("--write", f"{tmp_path}/behind.stamps")
    listener = namespace.start("tap", "in", *SOFTWARE, *write, *count)
    tap = by_metadata(namespace, path, "software", absorb=absorb, count=20_000)
    second = namespace.run(
        *(sys.executable, "-P", "-c", ONCE.format(path=f"{tmp_path}/x")), check=False
    )
    assert "in has an XDP program already" in second.stderr
    sent = namespace.tailtap(
        *("generate", "gen", "--rate", "20 kpkt/s", "--count", "20000", "--warm-up-packets", "50"),
        *("--size", "64 B,1518 B", "--json"),
    )
    report = json.loads(sent.stdout)
    done = json.loads(tap.ended()[0])["in"]
    assert (done["seen"], done["stored"], done["lost"], done["other"]) == (20_000, 20_000, 0, 50)
    assert done["clock"] == "monotonic"
    stamps = read_stamps(path)[1]
    assert np.array_equal(stamps["id"], np.arange(20_000))
    assert stamps["len"].tolist() == [60, 1514] * 10_000
    late = stamps["time"].astype(np.int64) - report["first_ns"] - 50_000 * np.arange(20_000)
    assert late.min() >= report["slip_ns"]["min"]
    behind = (listener.stop() if absorb else json.loads(listener.ended()[0]))["links"]["in"]
    assert behind["seen"] == (0 if absorb else 20_000)
    assert "xdp" not in namespace.run("ip", "link", "show", "in").stdout


ONCE = (
    "from tailtap import _core; from tailtap.lab.instruments.taps.links import TapLink; "
    "_core.stamp([(TapLink('in', 'in'), {path!r}, 'metadata')], 'software', lambda: None)"
)


def test_killed_it_leaves_the_link_alone(namespace: Namespace, tmp_path: Path) -> None:
    path = tmp_path / "in.stamps"
    tap = by_metadata(namespace, path, "software")
    assert "xdp" in namespace.run("ip", "link", "show", "in").stdout
    tap.process.kill()
    tap.process.wait()
    assert "xdp" not in namespace.run("ip", "link", "show", "in").stdout


def test_a_driver_without_a_clock_refuses(namespace: Namespace, tmp_path: Path) -> None:
    """By its driver, when that is asked though the link says that it has none."""
    code = ONCE.format(path=f"{tmp_path}/in.stamps").replace("software", "hardware")
    for method in ("metadata", "messages"):
        script = code.replace("metadata", method)
        result = namespace.run(sys.executable, "-P", "-c", script, check=False)
        assert "MachineError: interface in cannot stamp" in result.stderr
        assert "its driver has no hardware stamps" in result.stderr
    assert not (tmp_path / "in.stamps").exists()
