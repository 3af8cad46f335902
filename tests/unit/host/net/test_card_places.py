"""Where the work of a card's queues is done, remembered while they are made anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailtap.base.files import set_value
from tailtap.host.net.card_settings import places, put_back


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
