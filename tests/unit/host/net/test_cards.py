"""Cards that move into a lab: what is remembered of them, and where their interrupts go."""

from __future__ import annotations

import errno
import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tailtap.base.errors import MachineError
from tailtap.base.files import set_value
from tailtap.host.net.cards import Card, CardState
from tailtap.host.net.port_work import CardInterrupts

STATE = CardState(
    interface="ens1f0",
    address="b4:96:91:00:00:01",
    mtu=9000,
    up=True,
    promiscuous=False,
    threaded="0",
    steering={"rx-0": "0", "rx-1": "00000001,00000000"},
    interrupts={"interrupt 0": "0-3", "interrupt 1": "7"},
)


@pytest.mark.parametrize(
    "state", [STATE, replace(STATE, up=False, promiscuous=True, threaded=None, interrupts={})]
)
def test_the_journal_tells_all_that_is_needed(state: CardState) -> None:
    assert CardState(**json.loads(json.dumps(asdict(state)))) == state
    card = Card("ens1f0", "tt-abc123-dut", "tt-in", 1500)
    assert Card.parse(json.loads(json.dumps(card.as_json()))) == card
    assert card.claims == ["card ens1f0"]


@pytest.fixture
def card(tmp_path: Path) -> Path:
    """The files of a card with two interrupts, and of another one's."""
    device = tmp_path / "sys/devices/pci0000:3a/0000:3b:00.0"
    (device / "msi_irqs").mkdir(parents=True)
    for number in (45, 46, 47):
        folder = tmp_path / "proc/irq" / str(number)
        folder.mkdir(parents=True)
        (folder / "smp_affinity_list").write_text("0-7\n")
        if number < 47:
            (device / "msi_irqs" / str(number)).write_text("msix\n")
    (device / "irq").write_text("47\n")
    port = tmp_path / "sys/class/net/card"
    port.mkdir(parents=True)
    (port / "device").symlink_to(device)
    return device


def steered(cpus: str, root: Path) -> CardInterrupts:
    change = CardInterrupts(None, "card", cpus, root=str(root))
    change.apply()
    return change


def test_interrupts_go_to_the_cpus_of_the_dut_and_back(card: Path, tmp_path: Path) -> None:
    state = replace(STATE, device=str(card), driver="ice")
    assert state.facts(tmp_path)["interrupts"] == {"45": "0-7", "46": "0-7"}
    before = CardInterrupts(None, "card", "1,2", root=str(tmp_path)).read()
    change = steered("1,2", tmp_path)
    assert change.pending(before)
    facts = state.facts(tmp_path)
    assert facts["interrupts"] == {"45": "1,2", "46": "1,2"}
    assert (facts["driver"], facts["bus_address"]) == ("ice", "0000:3b:00.0")
    assert (tmp_path / "proc/irq/47/smp_affinity_list").read_text() == "0-7\n"
    # Something like irqbalance moved one of them meanwhile.
    (tmp_path / "proc/irq/46/smp_affinity_list").write_text("5\n")
    left = change.undo(before)
    assert left is not None
    assert not change.pending({"45": "0-7"})
    assert "/proc/irq/46/smp_affinity_list (5, before tailtap 0-7)" in left
    assert state.facts(tmp_path)["interrupts"] == {"45": "0-7", "46": "5"}


def test_a_card_without_messages_has_one_interrupt(card: Path, tmp_path: Path) -> None:
    for path in (card / "msi_irqs").iterdir():
        path.unlink()
    state = replace(STATE, device=str(card))
    steered("3", tmp_path)
    assert state.facts(tmp_path)["interrupts"] == {"47": "3"}


def test_messages_that_were_never_requested_are_no_interrupt_of_another_card(
    card: Path, tmp_path: Path
) -> None:
    """The files of a card that another driver had: `irq` has the number that it once had."""
    for number in (45, 46):
        (tmp_path / f"proc/irq/{number}/smp_affinity_list").unlink()
    steered("3", tmp_path)
    assert (tmp_path / "proc/irq/47/smp_affinity_list").read_text() == "0-7\n"


def test_an_interrupt_that_stays_is_told_as_it_is(card: Path, tmp_path: Path) -> None:
    """The kernel places some itself, and refuses."""
    stays = tmp_path / "proc/irq/46"
    (stays / "smp_affinity_list").unlink()
    stays.rmdir()
    state = replace(STATE, device=str(card))
    steered("3", tmp_path)
    assert state.facts(tmp_path)["interrupts"] == {"45": "3"}


def test_each_interrupt_has_a_cpu_of_its_own(card: Path, tmp_path: Path) -> None:
    (card / "msi_irqs/47").write_text("msix\n")
    change = CardInterrupts(None, "card", "1,3", apart=True, root=str(tmp_path))
    before = change.read()
    applied = change.apply()
    assert applied == change.read() == change.plan() == {"45": "1", "46": "3", "47": "1"}
    # Somebody else moved one of them to where another one was sent.
    (tmp_path / "proc/irq/46/smp_affinity_list").write_text("1\n")
    left = change.undo(before, applied)
    assert left is not None
    assert "46/smp_affinity_list (1, before tailtap 0-7)" in left
    assert change.read() == {"45": "0-7", "46": "1", "47": "0-7"}


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EINVAL])
def test_an_interrupt_that_the_kernel_refuses_to_move_is_left_and_others_are_errors(
    card: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:

    def refusing(path: Path, text: str) -> None:
        if "irq/45" in str(path):
            raise OSError(code, "refused")
        set_value(path, text)

    monkeypatch.setattr("tailtap.host.net.port_work.set_value", refusing)
    if code == errno.EINVAL:
        with pytest.raises(MachineError, match="of card cannot go to CPUs 3: refused"):
            steered("3", tmp_path)
    else:
        assert steered("3", tmp_path).read() == {"45": "0-7", "46": "3"}


def test_a_card_without_hardware_has_no_interrupts(tmp_path: Path) -> None:
    (tmp_path / "sys/class/net/card").mkdir(parents=True)
    change = steered("1", tmp_path)
    assert change.read() == {}
    assert change.undo({}) is None


def test_a_card_can_be_polled_by_threads_of_its_own() -> None:
    card = Card("ens1f0", "tt-abc123-dut", "tt-in", 1500, threads=True)
    assert Card.parse(json.loads(json.dumps(card.as_json()))) == card
    # No kernel without them, and no card that is not there, has such a file.
    with pytest.raises(MachineError, match=r"ens1f0 cannot be polled by threads .*: there is no "):
        card.apply()
