"""What a check finds out before anything is made, whatever the machine is."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from experiment_files import check

from tailtap.base.errors import Findings
from tailtap.host.cpu.cpus import usable
from tailtap.lab.forwarders import Need
from tailtap.measure.check import check_experiment
from tailtap.records.printed import Message, RunCheckRecord
from tailtap.remote import Host

NO_CARDS = (
    "dut.options.driver: vfio-pci drives network cards, and the DuT's ports are links of the "
)
BARE = "name: a\ntraffic: {cpu: 0}\ndut: {cpus: [1]}\n"


@pytest.fixture(autouse=True)
def nothing_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def outlook(text: str, *overrides: str) -> RunCheckRecord:
    here = Path.cwd()
    checked = check(here, text, *overrides)
    found = check_experiment(checked, Path("out"))
    assert [path.name for path in here.iterdir()] == ["e.yaml"]
    return found


def texts(messages: list[Message]) -> list[str]:
    return [one.message for one in messages]


def problems(*overrides: str, text: str = BARE) -> list[str]:
    [found] = outlook(text, *overrides).runs
    return texts(found.problems)


def test_each_run_has_its_own_answer() -> None:
    text = "name: a\ntraffic: {}\ndut: {platform: wire, cpus: [0]}\nrepeat: 2\n"
    text += "vary: {traffic.cpu: [0, 8000]}\ndiffers: [it is smaller]\n"
    found = outlook(text)
    assert not found.can_run
    assert [run.slug for run in found.runs] == [
        "001-0-r1",
        "002-8000-r1",
        "003-0-r2",
        "004-8000-r2",
    ]
    assert [len(run.problems) for run in found.runs] == [0, 1, 0, 1]
    content = msgspec.to_builtins(found)
    assert {key: content[key] for key in ("schema", "name", "differs", "can_run")} == {
        "schema": "tailtap.check/1",
        "name": "a",
        "differs": ["it is smaller"],
        "can_run": False,
    }
    assert content["runs"][0] == {
        "number": 1,
        "slug": "001-0-r1",
        "variables": {"traffic.cpu": 0},
        "problems": [],
        "notes": [],
    }
    [problem] = content["runs"][1]["problems"]
    assert problem["message"].startswith("there is no CPU 8000 here for traffic.cpu: choose from")
    assert (content["traffic_seconds"], content["stamp_bytes"]) == (44, 4 * 100_000 * 16 * 2)


def test_everything_that_is_wrong_is_told_at_once() -> None:
    found = problems("dut.cpus=[8000]", "tap.clock=hardware", "dut.kernel='0.1'")
    assert [text.split(":")[0] for text in found] == [
        "there is no CPU 8000 here for dut.cpus",
        "tap.clock",
        "dut.kernel",
    ]


needs_two = pytest.mark.skipif(len(usable()) < 2, reason="this machine has one CPU")


@needs_two
def test_a_device_needs_a_core_besides_the_generator() -> None:
    """Both on one core: the latency would be that of the generator's own work."""
    [found] = problems("dut.cpus=0")
    assert found.startswith("generator and DuT share CPU 0, so the latency would be that of the")
    assert "give dut.cpus another one (" in found
    assert problems("dut.cpus=0", "dut.platform=wire") == []
    assert problems("dut.cpus=0", "dut.irq=1") == []  # where packets are received


@needs_two
def test_a_core_that_is_shared_is_told() -> None:
    [found] = outlook(BARE, "dut.cpus=[0, 1]").runs
    assert found.problems == []
    [note] = texts(found.notes)
    assert note.startswith("generator and DuT share CPU 0: the latency includes the generator's")


def test_a_rate_that_may_be_too_high_is_told() -> None:
    def told(rate: str) -> list[str]:
        [found] = outlook(BARE, f"traffic.rate={rate}").runs
        return [note for note in texts(found.notes) if note.startswith("traffic.rate: ")]

    [note] = told("5 Mpkt/s")
    assert "5 Mpkt/s leaves each CPU of the generator 200 ns a packet" in note
    assert told("1 Mpkt/s") == []


def test_cards_that_are_asked_for_must_be_named() -> None:
    driver = "dut.forwarder={testpmd: {driver: vfio-pci}}"
    [found] = [text for text in problems(driver) if "dpdk-testpmd" not in text]
    assert found.startswith(NO_CARDS)
    assert "with --set dut.ports='[INGRESS, EGRESS]'" in found
    assert "with --set tap.ports='[BEFORE, BEHIND]'" in found


def test_cards_that_are_not_there() -> None:
    found = problems("dut.ports=[tt-no0, tt-no1]", "tap.ports=[tt-no2, lo]")
    assert [text.split(":")[0] for text in found] == [
        "there is no interface 'tt-no0' on this machine (`ip link` lists them)",
        "there is no interface 'tt-no1' on this machine (`ip link` lists them)",
        "there is no interface 'tt-no2' on this machine (`ip link` lists them)",
        "lo is not Ethernet",
    ]


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["traffic.size=9000 B", "dut.forwarder=testpmd"], "traffic.size: DPDK's programs hold "),
        (
            ["dut.forwarder={suricata: {mode: dpdk}}"],
            "dut.cpus: suricata in its mode dpdk polls each port on a CPU of its own",
        ),
        (
            ["dut.platform=vm", "dut.forwarder={testpmd: {driver: vfio-pci}}"],
            "dut.options.driver: vfio-pci needs an IOMMU in the virtual machine: say dut.iommu: ",
        ),
        (
            ["dut.forwarder={external: {driver: uio_pci_generic, command: sh}}"],
            "dut.options.driver: uio_pci_generic lets a device write anywhere",
        ),
        (["dut.functions=true"], "dut.functions: links of the lab have no virtual functions: name"),
        (
            ["dut.forwarder={testpmd: {busy_budget: 8}}"],
            "dut.options.busy_budget: af_packet has no busy polling: take driver: af_xdp",
        ),
        (
            ["dut.forwarder={external: {driver: vfio-pci, command: sh}}"],
            NO_CARDS,
        ),
        (
            [
                "dut.platform=vm",
                "dut.forwarder={testpmd: {driver: uio_pci_generic, huge_pages: false}}",
            ],
            "dut.options.huge_pages: uio_pci_generic gives devices physical addresses",
        ),
        (
            ["dut.forwarder={testpmd: {huge_pages: true, memory: 900000 GiB}}"],
            "dut.options.huge_pages: false",
        ),
        (
            ["dut.forwarder={external: {command: 'tt-no-such {ingress}'}}"],
            "the program tt-no-such is missing on this machine: check dut.options.command",
        ),
        (
            ["traffic.generator=external", "traffic.external={command: tt-no-such}"],
            "the program tt-no-such is missing: check traffic.external.command",
        ),
        (
            ["dut.platform=container", "dut.root=debian", "dut.forwarder=suricata"],
            "dut.root: the program suricata is not in Debian's file system",
        ),
        (["dut.platform=container", "dut.memory=1 MiB"], "dut.memory: 1 MiB is too little"),
        (["dut.platform=container", "dut.boot=tt.never=1"], "dut.boot: this machine was not boot"),
        (["dut.irq=[1, 8000]"], "dut.irq: CPU 8000 is not there or is off: choose from 0"),
        (["dut.platform=vm", "dut.memory=1 MiB"], "dut.memory of 1 MiB is too little"),
        (["dut.platform=vm", "dut.kernel=/tt/vmlinuz"], "dut.kernel: cannot read /tt/vmlinuz"),
        (["dut.platform=vm", "dut.kernel='6.1'"], "dut.kernel: '6.1' is neither vanilla, rt nor"),
    ],
)
def test_what_cannot_work_is_a_problem(overrides: list[str], said: str) -> None:
    assert [text for text in problems(*overrides) if said in text], problems(*overrides)


def test_where_there_is_no_device_nothing_of_it_matters() -> None:
    overrides = ("dut.platform=wire", "dut.forwarder={external: {command: tt-no-such}}")
    assert problems(*overrides) == []


def test_a_command_that_is_there_may_need_more() -> None:
    overrides = ("traffic.generator=external", "traffic.external={command: sh -c true}")
    [found] = outlook(BARE, "dut.platform=wire", *overrides).runs
    assert found.problems == []
    assert texts(found.notes) == ["traffic.external.command: tailtap does not check what sh needs"]


def test_the_disk_must_have_room_for_all_runs() -> None:
    found = outlook(BARE, "traffic={rate: 10 Mpkt/s, duration: 400 s}", "repeat=10000")
    assert len(found.runs) == 10_000
    [text] = [text for text in texts(found.problems) if "need" in text]
    assert "1280000000.0 MB and the disk has" in text
    assert not found.can_run


@pytest.mark.parametrize(
    ("less", "more", "factor"),
    [
        ("traffic.bidirectional=false", "traffic.bidirectional=true", 2),
        ("dut={line: 9, taps: ends}", "dut={line: 9, taps: hops}", 5),
    ],
)
def test_each_direction_and_tap_takes_room(less: str, more: str, factor: int) -> None:
    assert outlook(BARE, more).stamp_bytes == factor * outlook(BARE, less).stamp_bytes


def test_only_errors_of_ours_are_findings() -> None:
    findings = Findings()
    with pytest.raises(ZeroDivisionError):
        findings.ask(divmod, 1, 0)
    assert findings.problems == []
    assert findings.ask(divmod, 7, 2) == (3, 1)


def test_the_machine_is_asked_once_for_runs_of_one_forwarder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []
    find = Need.find

    def found(need: Need, host: Host) -> str:
        asked.append(need.program)
        return find(need, host)

    monkeypatch.setattr(Need, "find", found)
    text = BARE + "vary:\n  traffic.rate: [1 kpkt/s, 2 kpkt/s]\n  dut.forwarder: [tc-mirred, nat]\n"
    assert len(outlook(text).runs) == 4
    assert asked == ["tc", "ip", "nft"]
