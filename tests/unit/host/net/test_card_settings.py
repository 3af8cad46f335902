"""What `ethtool` shows of cards, and where the work of their queues is done."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from pathlib import Path
from unittest import mock

import pytest
from scratch_machine import judged, retold, scratch_machine

from tailtap.base.errors import MachineError
from tailtap.base.files import set_value
from tailtap.host.knobs import cards, select
from tailtap.host.knobs.tree import Absent, Purpose, Tree
from tailtap.host.net.card_settings import CardSetting, parse, places, put_back
from tailtap.host.tuning.apply import judge

COALESCE = """Coalesce parameters for eth1:
Adaptive RX: on  TX: n/a
stats-block-usecs: n/a

rx-usecs: {usecs}
rx-frames: {frames}
rx-usecs-irq: n/a

tx-usecs: 50
tx-frames: 1
"""
CHANNELS = """Channel parameters for eth1:
Pre-set maximums:
RX:\t\t{rx}
TX:\t\t{rx}
Other:\t\t1
Combined:\t{combined}
Current hardware settings:
RX:\t\t{now_rx}
TX:\t\t{now_rx}
Other:\t\t1
Combined:\t{now}
"""
FEATURES = """Features for eth1:
tcp-segmentation-offload: on
\ttx-tcp-segmentation: on
\ttx-tcp-ecn-segmentation: on [fixed]
\ttx-tcp-mangleid-segmentation: off
generic-receive-offload: on
large-receive-offload: on [fixed]
rx-gro-hw: off [requested on]
"""
PAUSE = """Pause parameters for eth1:
Autonegotiate:\ton
RX:\t\ton
TX:\t\toff
RX negotiated: on
TX negotiated: off
"""
EEE = """EEE settings for eth1:
\tEEE status: {status}
\tTx LPI: 17 (us)
\tSupported EEE link modes:  100baseT/Full
"""

RINGS = """Ring parameters for eth1:
Pre-set maximums:
RX:\t\t4096
RX Mini:\tn/a
RX Jumbo:\tn/a
TX:\t\t4096
Current hardware settings:
RX:\t\t{rx}
RX Mini:\tn/a
RX Jumbo:\tn/a
TX:\t\t512
RX Buf Len:\t\tn/a
TX Push:\toff
"""
SPREAD = """RX flow hash indirection table for eth1 with {rings} RX ring(s):
    0:  {first}
    8:  {second}
RSS hash key:
be:ac:01:00:fa:6a:42:b7
RSS hash function:
    toeplitz: on
    xor: off
"""


ETH1 = Purpose("bare-metal", (1,), (0,), ("eth1",))


def said_by(text: str) -> AbstractContextManager[object]:
    """A card of which `ethtool` shows this text."""
    return mock.patch.object(cards, "settings", lambda _name, table: parse(table, text))


def value(name: str, text: str) -> str | None:
    [knob] = select([name])
    with said_by(text), contextlib.suppress(Absent):
        [found] = knob.where.read(Tree(), ETH1).values()
        return found
    return None


def change(name: str, text: str, to: str = "off") -> dict[str, str]:
    [knob] = select([name])
    with said_by(text):
        made = [one.as_json()["values"] for one in knob.where.changes(Tree(), ETH1, to)]
    return made[0] if made else {}


@pytest.mark.parametrize(
    ("usecs", "frames", "said", "words"),
    [
        ("0", "1", "off", {"rx-usecs": "0"}),
        ("0", "n/a", "off", {"rx-usecs": "0"}),
        ("3", "n/a", "3 us", {"rx-usecs": "0"}),
        ("3", "0", "3 us", {"rx-usecs": "0"}),
        # Zero microseconds alone would mean to wait for 64 packets.
        ("0", "64", "0 us, 64 packets", {"rx-usecs": "0", "rx-frames": "1"}),
        ("8", "64", "8 us, 64 packets", {"rx-usecs": "0", "rx-frames": "1"}),
        ("n/a", "8", None, None),
    ],
)
def test_how_long_a_card_waits(
    usecs: str, frames: str, said: str | None, words: dict[str, str] | None
) -> None:
    text = COALESCE.format(usecs=usecs, frames=frames)
    assert value("receive-coalescing", text) == said
    if words is not None:
        assert change("receive-coalescing", text) == words
    assert value("send-coalescing", text) == "50 us"
    assert value("adaptive-receive", text) == "on"
    assert value("adaptive-send", text) is None


@pytest.mark.parametrize(
    ("rx", "combined", "now_rx", "now", "said", "words"),
    [
        ("n/a", "8", "n/a", "8", "8", {"combined": "2"}),
        ("4", "0", "4", "0", "4", {"rx": "2"}),
        ("n/a", "8", "n/a", "1", "1", {}),
        ("n/a", "1", "n/a", "1", None, None),
    ],
)
def test_queues(
    rx: str, combined: str, now_rx: str, now: str, said: str | None, words: dict[str, str] | None
) -> None:
    text = CHANNELS.format(rx=rx, combined=combined, now_rx=now_rx, now=now)
    assert value("card-queues", text) == said
    if words is not None:
        assert change("card-queues", text, "2") == words


def test_features_pause_frames_and_sleeping_links() -> None:
    assert value("receive-merging", FEATURES) == "on"
    assert change("receive-merging", FEATURES) == {"gro": "off"}
    assert value("card-splitting", FEATURES) == "on"
    # What is off already is not switched on when it is put back; what the kernel holds is left out.
    assert change("card-splitting", FEATURES) == {"tx-tcp-segmentation": "off"}
    without = FEATURES.replace("tx-tcp-segmentation: on", "tx-tcp-segmentation: off")
    assert value("card-splitting", without) == "off"
    assert value("card-merging", FEATURES) is None
    assert value("pause-frames", PAUSE) == "rx"
    assert change("pause-frames", PAUSE) == {"autoneg": "off", "rx": "off", "tx": "off"}
    assert value("pause-frames", PAUSE.replace("on", "off")) == "off"
    for status, said in (("enabled - active", "on"), ("disabled", "off"), ("not supported", None)):
        assert value("link-sleep", EEE.format(status=status)) == said


def test_rings() -> None:
    assert value("receive-ring", RINGS.format(rx=512)) == "512 of 4096"
    assert change("receive-ring", RINGS.format(rx=512), "largest") == {"rx": "4096"}
    assert value("receive-ring", RINGS.format(rx=4096)) == "largest"
    assert value("receive-ring", "") is None


@pytest.mark.parametrize(
    ("rings", "first", "second", "said"),
    [
        (4, "0 1 2 3 0 1 2 3", "0 1 2 3 0 1 2 3", "4"),
        (4, "0 1 2 0 1 2 0 1", "2 0 1 2 0 1 2 0", "3"),
        (4, "0 0 0 0 0 0 0 0", "0 0 0 0 0 0 0 0", "1"),
        # Drivers begin with blocks, which may differ by what division leaves over.
        (4, "0 0 0 0 0 0 0 0", "1 1 1 1 1 1 1 1", "2"),
        (4, "0 0 0 0 0 0 1 1", "1 1 1 2 2 2 2 2", "3"),
        # Weights that one number does not tell are left alone.
        (4, "0 0 0 0 0 0 0 0", "0 0 1 1 1 1 1 1", None),
        (4, "2 3 2 3 2 3 2 3", "2 3 2 3 2 3 2 3", None),
        (1, "0 0 0 0 0 0 0 0", "0 0 0 0 0 0 0 0", None),
    ],
)
def test_how_many_queues_packets_are_spread_over(
    rings: int, first: str, second: str, said: str | None
) -> None:
    rows = (f"{row.replace(' ', '     ')}" for row in (first, second))
    text = SPREAD.format(rings=rings, first=next(rows), second=next(rows))
    assert value("receive-spread", text) == said
    assert change("receive-spread", text, "2") == ({} if said is None else {"equal": "2"})
    assert value("receive-spread", "Cannot get RX ring count: Operation not supported\n") is None


def test_what_no_card_tells_is_not_applicable(tmp_path: Path) -> None:
    recorded = Tree(scratch_machine(tmp_path))
    for row in (one for one in cards.ROWS if "ethtool" in one.where.place):
        assert judge(row, recorded, Purpose.of(recorded, cpus="2-3")).answer == "not-applicable"
    # No driver stands behind the loop-back interface.
    here = Purpose("bare-metal", (1,), (0,), ("lo",))
    found = judged("pause-frames", Tree(), here)
    assert (found.answer, found.why) == (
        "not-applicable",
        "no card here lets anybody choose (lo)",
    )


def test_without_ethtool_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    found = judged("pause-frames", Tree(), Purpose("bare-metal", (1,), (0,), ("lo",)))
    assert found.answer == "unknown"
    assert "ethtool is missing: apt-get install" in found.why


def test_a_setting_is_undone_from_the_journal_alone() -> None:
    made = CardSetting("no-such-card", "coalesce", {"rx-usecs": "0"})
    assert retold(made, {"rx-usecs": "3"}) == made
    assert made.label == "ethtool -C no-such-card rx-usecs 0"
    # A card that is gone took its settings with it.
    assert not made.pending({"rx-usecs": "3"})
    assert made.undo({"rx-usecs": "3"}) is None
    with pytest.raises(MachineError, match="no-such-card"):
        made.apply()


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def card(root: Path, first: int, cpus: list[str], masks: list[str]) -> None:
    """A card with interrupts from `first` on, and as many queues as masks."""
    device = root / "sys/devices/card"
    for number, text in enumerate(cpus, first):
        write(device / f"msi_irqs/{number}", "msix\n")
        write(root / f"proc/irq/{number}/smp_affinity_list", f"{text}\n")
    port = root / "sys/class/net/card"
    port.mkdir(parents=True, exist_ok=True)
    for number, text in enumerate(masks):
        write(port / f"queues/rx-{number}/rps_cpus", f"{text}\n")
        write(port / f"queues/tx-{number}/xps_cpus", f"{text}\n")
    if not (port / "device").exists():
        (port / "device").symlink_to(device)


def test_new_interrupts_go_where_those_before_went(tmp_path: Path) -> None:
    # In order of their numbers, not of their names.
    card(tmp_path, 9, ["0-3", "2"], ["0", "c"])
    before = places("card", root=tmp_path)
    assert before == {
        "interrupt 0": "0-3",
        "interrupt 1": "2",
        "rx-0/rps_cpus": "0",
        "rx-1/rps_cpus": "c",
        "tx-0/xps_cpus": "0",
        "tx-1/xps_cpus": "c",
    }
    other = tmp_path / "other"
    card(other, 120, ["0-1", "0-1", "0-1"], ["0"])
    put_back("card", before, root=other)
    assert places("card", root=other) == {
        "interrupt 0": "0-3",
        "interrupt 1": "2",
        "interrupt 2": "0-1",
        "rx-0/rps_cpus": "0",
        "tx-0/xps_cpus": "0",
    }


def test_a_card_that_is_gone_has_none(tmp_path: Path) -> None:
    assert places("card", root=tmp_path) == {}
    put_back("card", {"interrupt 0": "1", "rx-0/rps_cpus": "1"}, root=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_that_the_kernel_places_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card(tmp_path, 40, ["0-3", "0-3"], [])
    managed = tmp_path / "proc/irq/40/smp_affinity_list"

    def refuse(path: Path, text: str) -> None:
        if path == managed:
            raise OSError(5, "Input/output error")
        set_value(path, text)

    monkeypatch.setattr("tailtap.host.net.card_settings.set_value", refuse)
    put_back("card", {"interrupt 0": "1", "interrupt 1": "1"}, root=tmp_path)
    assert places("card", root=tmp_path) == {"interrupt 0": "0-3", "interrupt 1": "1"}
