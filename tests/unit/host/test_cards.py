"""Cards that are lent: what is remembered of them, and where their interrupts go."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tailtap.host.cards import Loan, steer_interrupts

LOAN = Loan(
    interface="ens1f0",
    namespace="tt-abc123-dut",
    port="tt-in",
    address="b4:96:91:00:00:01",
    mtu=9000,
    up=True,
    promiscuous=False,
    threaded="0",
    steering={"rx-0": "0", "rx-1": "00000001,00000000"},
    interrupts={"45": "0-3", "46": "7"},
)


@pytest.mark.parametrize(
    "loan", [LOAN, replace(LOAN, up=False, promiscuous=True, threaded=None, interrupts={})]
)
def test_the_journal_tells_all_that_is_needed(loan: Loan) -> None:
    assert len(loan.entry().split("\n")) == 1
    assert Loan.parse(loan.entry()) == loan


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
    return device


def test_interrupts_go_to_the_cpus_of_the_dut(card: Path, tmp_path: Path) -> None:
    loan = replace(LOAN, device=str(card), driver="ice")
    assert loan.facts(tmp_path)["interrupts"] == {"45": "0-7", "46": "0-7"}
    steer_interrupts(loan, [2, 1], tmp_path)
    facts = loan.facts(tmp_path)
    assert facts["interrupts"] == {"45": "1,2", "46": "1,2"}
    assert (facts["driver"], facts["bus_address"]) == ("ice", "0000:3b:00.0")
    assert (tmp_path / "proc/irq/47/smp_affinity_list").read_text() == "0-7\n"


def test_a_card_without_messages_has_one_interrupt(card: Path, tmp_path: Path) -> None:
    for path in (card / "msi_irqs").iterdir():
        path.unlink()
    loan = replace(LOAN, device=str(card))
    steer_interrupts(loan, [3], tmp_path)
    assert loan.facts(tmp_path)["interrupts"] == {"47": "3"}


def test_an_interrupt_that_stays_is_told_as_it_is(card: Path, tmp_path: Path) -> None:
    """The kernel places some itself, and refuses."""
    stays = tmp_path / "proc/irq/46"
    (stays / "smp_affinity_list").unlink()
    stays.rmdir()
    loan = replace(LOAN, device=str(card))
    steer_interrupts(loan, [3], tmp_path)
    assert loan.facts(tmp_path)["interrupts"] == {"45": "3"}
    steer_interrupts(replace(loan, device=None), [1], tmp_path)
    assert loan.facts(tmp_path)["interrupts"] == {"45": "3"}
