"""Where interrupts of cards were handled, as /proc/interrupts counts them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailtap.lab.instruments.kernel_counters import Handled, counted
from tailtap.records.record import as_json

BEFORE = """\
           CPU0       CPU2
  0:         35          0   IO-APIC   2-edge      timer
 45:       1000          7   PCI-MSI 524288-edge      eth1-rx-0
 46:          3          0   PCI-MSI 524289-edge      eth1-tx-0
 47:          0          0   PCI-MSI 524290-edge      eth1
NMI:          0          0   Non-maskable interrupts
"""
AFTER = BEFORE.replace("1000          7", "1001        907").replace(
    "  3          0", "  3         20"
)
SENT = {"45": ("tt-in", (2,)), "46": ("tt-out", (2,)), "47": ("tt-out", ())}


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    for number, effective in (("45", "2"), ("46", "2"), ("47", "0")):
        folder = tmp_path / "irq" / number
        folder.mkdir(parents=True)
        (folder / "smp_affinity_list").write_text("2\n" if number != "47" else "0,2\n")
        (folder / "effective_affinity_list").write_text(f"{effective}\n")
    (tmp_path / "interrupts").write_text(BEFORE)
    return tmp_path


def test_counters_of_cpus_that_are_on() -> None:
    assert counted(BEFORE)["45"] == {0: 1000, 2: 7}
    assert "NMI" not in counted(BEFORE)
    assert counted("") == {}


def test_what_came_to_another_cpu_is_told(proc: Path) -> None:
    handled = Handled(SENT, proc)
    (proc / "interrupts").write_text(AFTER)
    reading = handled.stop()
    facts = as_json(reading.facts)["card_interrupts"]
    assert facts["45"] == {
        "port": "tt-in",
        "cpus": [2],
        "affinity": "2",
        "effective": "2",
        "handled": {"0": 1, "2": 900},
    }
    assert facts["46"]["handled"] == {"2": 20}
    assert (facts["47"]["handled"], facts["47"]["affinity"]) == ({}, "0,2")
    assert [dict(row) for row in reading.warnings] == [
        {
            "code": "interrupts-elsewhere",
            "message": "CPU 0 handled 1 interrupts 45 of tt-in, which was sent to 2 and goes to 2",
        }
    ]


def test_an_interrupt_that_was_left_to_the_kernel_is_nowhere_else(proc: Path) -> None:
    handled = Handled({"45": ("tt-in", ())}, proc)
    (proc / "interrupts").write_text(AFTER)
    reading = handled.stop()
    assert reading.facts.card_interrupts["45"].handled == {"0": 1, "2": 900}
    assert reading.warnings == ()
