"""Whole experiments: from the file to the evaluations, and events in their runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import duckdb
import pytest
from captures import pcap
from forms import fits
from frames import udp_frame
from labtools import (
    TAILTAP,
    Machine,
    codes_of,
    counts_of,
    ids_of,
    measured,
    ran,
    record,
    stamps,
    statuses,
    was_made,
    write_experiment,
)
from program import TAILTAP as PROGRAM
from program import one_line_error, tailtap

from tailtap.analysis.evaluation import Evaluation
from tailtap.experiment.reading import read_experiment
from tailtap.lab.forwarders import FORWARDERS
from tailtap.lab.instruments.taps.inline import InlineTap
from tailtap.measure.campaign import Campaign
from tailtap.measure.runner import run_experiment
from tailtap.records.datapath import TapsOfFlows
from tailtap.remote.local import SYSTEM_PATH, Process

PACKETS, WARM_UP = 5_000, 1_000
EXPERIMENT = """\
name: lab
dut: {cpus: [1]}
traffic: {rate: 10 kpkt/s, duration: 500 ms, warm_up: 100 ms, flows: 10, cpu: 0}
"""


@pytest.mark.apart
def test_wire_and_bare_metal(tmp_path: Path) -> None:
    made = measured(tmp_path, EXPERIMENT + "vary: {dut.platform: [wire, bare-metal]}\n", "--json")
    slugs = ["001-wire", "002-bare-metal"]
    assert [run["slug"] for run in made.said] == slugs
    assert (made.out / "experiment.yaml").read_bytes() == (
        tmp_path / "experiment.yaml"
    ).read_bytes()
    planned = json.loads((made.out / "plan.json").read_text())["runs"]
    assert [run["slug"] for run in planned] == slugs
    assert (made.out / "results.duckdb").exists()
    medians = []
    for row, folder, content in zip(made.said, made.runs, made.records, strict=True):
        assert (content["status"], content["error"]) == ("done", None)
        assert content["generator"]["sent"] == PACKETS
        assert content["generator"]["warm_up"]["sent"] == WARM_UP
        for side in ("ingress", "egress"):
            counted = content["taps"][side]
            assert counted["seen"] == counted["stored"] == PACKETS
            assert counted["lost"] == 0
            assert counted["other"] >= WARM_UP
            assert counted["file"] == f"{side}.stamps"
            assert sorted(ids_of(folder, side)) == list(range(PACKETS))
        counts = row["evaluation"]["counts"]
        assert (counts["matched"], counts["lost"]) == (PACKETS, 0)
        fits(json.loads((folder / "evaluation/evaluation.json").read_text()))
        medians.append(Evaluation.load(folder / "evaluation").percentile(0.5).value)
        assert content["environment"]["kernel"]["release"] == os.uname().release
        assert "work-elsewhere" not in codes_of(folder)
    # A device takes time: the calibration must lie below everything measured through one.
    assert medians[0] < medians[1]


def test_what_a_device_costs_is_recorded_and_compared(tmp_path: Path) -> None:
    text = EXPERIMENT + "vary: {dut.forwarder: [tc-mirred, fault]}\n"
    # However late the generator is here: nothing of this depends on the load.
    made = measured(tmp_path, text, "--set", "traffic.slip_limit=10 s")
    told = tailtap("compare", made.out, "--json")
    assert told.returncode == 0, told.stderr
    kernel, process = made.records
    for content in (kernel, process):
        for cpu, spent in content["cpu_ns"].items():
            whole = sum(spent.values()) + content["steal_ns"][cpu]
            assert 0.7 * content["elapsed_ns"] < whole < 1.3 * content["elapsed_ns"]
    assert kernel["forwarder_memory"] is None
    assert 1_000_000 < process["forwarder_memory"] < 500_000_000
    (load,) = json.loads(told.stdout)["loads"]
    found = {entry["label"]: entry for entry in load["configurations"]}
    assert found["fault"]["resources"]["memory"] == process["forwarder_memory"]
    assert found["tc-mirred"]["resources"]["reserved"] == 1
    assert 0 < found["tc-mirred"]["resources"]["cpus"] <= 1.1
    assert found["tc-mirred"]["rank"] == {"best": 1, "last": 2}


def test_the_taps_write_away_from_the_measured_cpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Away from the device's always, and from the generator's where there is a third one."""
    allowed: list[set[int]] = []
    stop = InlineTap.stop

    def look(tap: InlineTap, process: Process) -> TapsOfFlows:
        threads = Path(f"/proc/{process.pid}/task").iterdir()
        allowed.extend(os.sched_getaffinity(int(thread.name)) for thread in threads)
        return stop(tap, process)

    monkeypatch.setattr(InlineTap, "stop", look)
    path = write_experiment(tmp_path, EXPERIMENT)
    run_experiment(read_experiment(path), path, Campaign(tmp_path / "out"))
    assert len(allowed) >= 2  # Python's thread and the one that writes
    measured = {0, 1} if os.sched_getaffinity(0) - {0, 1} else {1}
    assert all(cpus and not cpus & measured for cpus in allowed)


def test_traffic_of_another_shape_goes_through_the_device(tmp_path: Path) -> None:
    text = EXPERIMENT.replace("flows: 10", "flows: {src: fd00::1-fd00::9, dport: 50-59}")
    text = text.replace("warm_up: 100 ms", "warm_up_packets: 100, pause: 100 ms")
    text = text.replace("cpu: 0", "cpu: 0, ip: 6, vlan: 5, size: imix, pattern: poisson")
    made = measured(tmp_path, text)
    generator = made.record["generator"]
    assert counts_of(made.run)["matched"] == generator["sent"] > PACKETS // 2
    assert set(stamps(made.run / "egress.stamps")["length"]) == {71, 590, 1514}
    assert generator["warm_up"]["sent"] == 100


TRAFGEN = """\
import sys

for number in range(int(sys.argv[1])):
    print(
        "{ eth(da=02:74:74:00:00:02, sa=02:74:74:00:00:01),"
        f" ipv4(id={number + 256}, saddr=10.0.0.1, daddr=10.1.0.1), udp(sport=1024, dport=53),"
        " fill(0x55, 18) }"
    )
"""
"""A configuration of trafgen whose packets have their number in the identification of IPv4, and
where ours have their ids all the same one."""


def test_another_generator_with_ids_elsewhere_and_a_rate_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "packets.py").write_text(TRAFGEN)
    command = f"python3 {tmp_path}/packets.py {{packets}} | trafgen --in - --dev {{interface}} "
    # Half as fast as was asked for, however much time the machine has.
    command += "--num {packets} --gap $((2 * {gap}))ns --cpus 1 --no-sock-mem --notouch-irq"
    counted = "sent: '([0-9]+) packets outgoing'"
    external = f"external: {{key: '18:2:be', {counted}, command: 'sh -c \"{command}\"'}}"
    traffic = f"traffic: {{generator: external, {external}, rate: 2 kpkt/s, duration: 500 ms}}"
    made = measured(tmp_path, f"name: key\ndut: {{cpus: [1]}}\n{traffic}\n", "--json")
    for side in ("ingress", "egress"):
        # Not one packet of the probe, although all have something there.
        assert sorted(ids_of(made.run, side)) == list(range(256, 1256))
    counts = counts_of(made.run)
    assert (counts["matched"], counts["duplicate_ingress"]) == (1000, 0)
    assert made.record["parameters"]["traffic"]["external"]["key"] == "18:2:be"
    assert made.record["generator"]["sent"] == 1000
    assert "generator-rate" in codes_of(made.run)
    assert "generator-count" not in codes_of(made.run)
    assert not made.said[0]["valid"]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("tt-no-such-program {interface}", "the program tt-no-such-program is missing"),
        ("sh -c 'echo no >&2; exit 7'", "ended with status 7: no"),
        ("sleep 60", "no packet of the generator came to the ingress tap within 1 s"),
    ],
)
def test_another_generator_that_fails(tmp_path: Path, command: str, said: str) -> None:
    external = f'cpu: 0, generator: external, external: {{begin: 1 s, command: "{command}"}}'
    done = ran(tmp_path, EXPERIMENT.replace("cpu: 0", external), "--quiet").done
    assert done.returncode == 3
    assert said in done.stderr.splitlines()[-1]


def test_stamps_need_not_stay(tmp_path: Path) -> None:
    """What reads results, and what resumes, misses none of them."""
    text = EXPERIMENT + "keep: [evaluation, worst]\n"
    made = measured(tmp_path, text, "--set", "traffic.duration=100 ms")
    assert made.run.joinpath("evaluation/worst.parquet").exists()
    assert not [*made.run.glob("*.stamps"), *made.run.glob("*.pcap")]
    assert counts_of(made.run)["matched"] > 0
    again = ran(tmp_path, text, "--set", "traffic.duration=100 ms", "--resume").done
    assert "run 1 of" not in again.stderr
    done = tailtap("report", str(made.out))
    assert done.returncode == 0, done.stderr


def test_folders_that_do_not_fit(machine: Machine, tmp_path: Path) -> None:
    short = ("--set", "traffic.duration=10 ms")
    made = measured(tmp_path, EXPERIMENT, *short, machine=machine)
    run, out = ("run", tmp_path / "experiment.yaml", *short), ("--out", made.out)
    for words, said in (
        (out, "add --resume"),
        ((*out, "--set", "traffic.flows=3", "--resume"), "traffic.flows (10 there, 3 here)"),
        (("--out", tmp_path / "no", "--resume"), "nothing to resume"),
        (("--resume",), "--resume needs --out"),
    ):
        assert said in one_line_error(tailtap(*run, *words, beside=machine.pid), 2)
    assert statuses(made.out) == ["done"]


def test_a_capture_is_replayed(tmp_path: Path) -> None:
    """Packets of three sizes at their own pace, one of which has no place for an id."""
    frames = [udp_frame(9), udp_frame(9, ipv6=True), udp_frame(9)[:23] + b"\x06" + bytes(36)]
    capture = tmp_path / "x.pcap"
    capture.write_bytes(pcap((n * 1_000_000, frame) for n, frame in enumerate(frames)))
    text = EXPERIMENT.partition("traffic:")[0]
    text += f"traffic: {{replay: {capture}, duration: 150 ms, warm_up_packets: 7, cpu: 0}}\n"
    made = measured(tmp_path, text)
    generator = made.record["generator"]
    # A packet each millisecond, and after the last one the first again: 150 in 150 ms.
    assert (generator["sent"], generator["with_id"]) == (150, 100)
    assert generator["pattern"] == {"kind": "recorded"}
    assert counts_of(made.run)["matched"] == 100
    assert "without-id" in codes_of(made.run)
    assert sorted(ids_of(made.run)) == [number for number in range(150) if number % 3 != 2]


def test_what_this_machine_cannot_is_refused_before_a_run(machine: Machine, tmp_path: Path) -> None:
    command = ("run", write_experiment(tmp_path, EXPERIMENT), "--out", tmp_path / "out", "--set")
    for setting, said in (
        ("tap.clock=hardware", "a veth pair, which stamps in software only"),
        ("dut.cpus=[8000]", "there is no CPU 8000 here for dut.cpus: choose from 0"),
    ):
        done = tailtap(*command, setting, beside=machine.pid)
        assert said in one_line_error(done, 3)
    bare = ("setpriv", "--inh-caps=-all", "--bounding-set=-all", "--", *TAILTAP)
    done = machine.run(*bare, *map(str, command[:-1]))
    assert one_line_error(done, 3).startswith("tailtap: root lacks CAP_NET_ADMIN")
    assert machine.run(*bare, "clean").returncode == 3
    doctor = machine.run(*bare, "doctor", "--json")
    assert doctor.returncode == 3
    assert json.loads(doctor.stdout)["can_run"] is False
    assert not (tmp_path / "out").exists()


def test_doctor_finds_that_it_works_and_leaves_nothing(machine: Machine) -> None:
    done = machine.tailtap("doctor", "--json")
    assert machine.namespaces() == []
    assert was_made(done), done.stderr
    told = json.loads(done.stdout)
    fits(told)
    found = {(one["area"], one["name"]): one["state"] for one in told["checks"]}
    kernel = [("kernel", "namespaces and veth"), ("kernel", "receive steering")]
    for key in (*kernel, ("taps", "inline"), ("forwarders", "tc-mirred")):
        assert found[key] == "ok"
    assert [name for area, name in found if area == "forwarders"] == list(FORWARDERS)
    suricata = "ok" if shutil.which("suricata") else "missing"
    assert found["forwarders", "suricata"] == suricata


@pytest.mark.slow
def test_the_environment_is_that_of_each_run(machine: Machine, tmp_path: Path) -> None:
    fake = tmp_path / "clocksource"
    fake.write_text("tuned\n")
    out = tmp_path / "out"
    path = write_experiment(tmp_path, EXPERIMENT + "repeat: 2\n")
    with machine.held(tmp_path, "run", str(path), "--out", str(out)) as running:
        kernel = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
        assert machine.run("mount", "--bind", str(fake), kernel).returncode == 0
        running.go_on()
        status, stderr = running.ended()
    assert status == 0, stderr
    first, second = (record(run)["environment"] for run in sorted((out / "runs").iterdir()))
    assert first.pop("clocksource") != "tuned"
    assert second.pop("clocksource") == "tuned"
    assert first["versions"] == second["versions"]


PACKAGES = {
    "container": ("lxc-start", "lxc"),
    "crun": ("crun", "crun"),
    "runc": ("runc", "runc"),
    "podman": ("podman", "podman"),
    "vm": ("virt-qemu-run", "libvirt-daemon"),
    "testpmd": ("dpdk-testpmd", "dpdk-dev"),
}
"""By platform or forwarder: a program that it needs, and the package that brings it."""


def test_doctor_names_the_package_of_each_platform_and_forwarder() -> None:
    """What is there is hidden from it: programs, and /etc/protocols of the package netbase."""
    programs = [
        shutil.which(program, path=f"/usr/bin:{SYSTEM_PATH}") for program, _ in PACKAGES.values()
    ]
    hidden = [*filter(None, programs), *filter(Path.exists, [Path("/etc/protocols")])]
    script = "".join(f"mount --bind /dev/null {one}\n" for one in hidden)
    script += f"exec {PROGRAM} doctor --json"
    done = subprocess.run(["unshare", "--mount", "sh", "-ec", script], capture_output=True,
                          text=True, check=False, timeout=120)  # fmt: skip
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]
              if check["area"] in ("platforms", "forwarders")}  # fmt: skip
    assert checks["kernel-route"]["state"] == "ok", checks["kernel-route"]
    for name, (_, package) in PACKAGES.items():
        assert checks[name]["state"] == "missing", checks[name]
        assert "apt-get install " in checks[name]["remedy"], checks[name]
        assert package in checks[name]["remedy"].replace(",", "").split(), checks[name]


MILLISECOND_NS = 1_000_000
PACKET_NS = 100_000
EVENTFUL = """\
name: events
dut: {{platform: {platform}, forwarder: {forwarder}, cpus: [1]}}
traffic: {{rate: 10 kpkt/s, duration: {duration}, warm_up: 200 ms, cpu: 0, slip_limit: 500 ms}}
events:
{events}
require: {require}
"""


def made(
    folder: Path, events: str, require: str = "[]", platform: str = "bare-metal",
    forwarder: str = "tc-mirred", duration: str = "3 s",
) -> tuple[Path, str]:  # fmt: skip
    """The folder of an experiment of one run that was made, and what was printed."""
    if "OUTAGE" in events:
        source = Path(__file__).parents[1] / "support/outage.c"
        subprocess.run(["gcc", "-O2", "-o", folder / "outage", source], check=True)
        events = events.replace("OUTAGE", f"{folder}/outage")
    text = EVENTFUL.format(
        platform=platform, forwarder=forwarder, events=events, require=require, duration=duration
    )
    found = ran(folder, text)
    violated = require != "[]" and found.done.returncode == 1
    assert was_made(found.done) or violated, found.done.stderr
    assert found.record["status"] == "done", found.done.stderr
    return found.out, found.done.stdout + found.done.stderr


def told_by(out: Path) -> dict[str, Any]:
    [run] = (out / "runs").iterdir()
    return record(run)


@pytest.mark.apart
@pytest.mark.parametrize(
    ("forwarder", "event"),
    [
        ("tc-mirred", "OUTAGE link {egress}"),
        pytest.param("fault", "OUTAGE pid {pid}", marks=pytest.mark.slow),
    ],
)
def test_an_outage_of_known_length_is_found(tmp_path: Path, forwarder: str, event: str) -> None:
    where = "host" if "pid" in event else "dut"
    out, printed = made(
        tmp_path,
        f"- {{at: 800 ms, name: outage, run: '{event}', where: {where}, window: 400 ms}}",
        "['blocked(outage) < 20 ms', 'blocked(event) < 10 s', 'blocked(other) < 1 s']",
        forwarder=forwarder,
        duration="8 s",  # a command waits for its turn beside a generator on the only other CPU
    )
    told = told_by(out)
    [found] = told["events"]
    assert (found["name"], found["where"], found["status"]) == ("outage", where, 0)
    assert found["at_ns"] == 800 * MILLISECOND_NS <= found["after_ns"] + PACKET_NS
    began, gone, back, whole = map(int, found["output"].split())
    assert found["begin_ns"] <= began < whole <= found["end_ns"]
    blocked = found["blocked"]
    around, other = found["around"], told["beside_events"]
    # Packets bound the outage from both sides, and tell of it as exactly as they come; the device
    # needs its core before something comes out again.
    assert blocked["least_ns"] <= whole - began + other["max_ns"]
    assert blocked["most_ns"] >= back - gone
    assert blocked["least_ns"] <= blocked["ns"] <= blocked["most_ns"]
    assert blocked["least_ns"] > 45 * MILLISECOND_NS
    assert around["packets"] + other["packets"] == 80_000
    lost = json.loads(next(out.glob("runs/*/evaluation/evaluation.json")).read_text())["counts"]
    assert around["lost"] + other["lost"] == lost["lost"]
    if forwarder == "tc-mirred":
        assert around["lost"] > 400
        assert "heavy-loss" not in {row["code"] for row in told["warnings"]} or other["lost"] > 10
    else:
        assert around["max_ns"] > 45 * MILLISECOND_NS
    assert "blocked(outage) < 20 ms" in printed
    lines = [line for line in printed.splitlines() if "blocked(" in line]
    assert [line.split("ms", 1)[-1].split()[0] for line in lines[:1]] == ["violated"]
    assert "holds" in lines[1]
    assert "no event other happened: known: outage" in lines[2]
    with duckdb.connect(str(out / "results.duckdb"), read_only=True) as database:
        rows = database.execute(
            "SELECT event, name, blocked_ns, packets, lost FROM events ORDER BY event"
        ).fetchall()
    assert rows == [
        (0, None, None, other["packets"], other["lost"]),
        (1, "outage", blocked["ns"], around["packets"], around["lost"]),
    ]


def test_rules_are_reloaded_and_a_forwarder_moves(tmp_path: Path) -> None:
    rules = tmp_path / "rules.nft"
    rules.write_text(
        "table netdev tailtap-test\ndelete table netdev tailtap-test\n"
        "table netdev tailtap-test { }\n"
    )
    moved = "taskset --all-tasks --cpu-list --pid 0 {pid}"
    out, _ = made(
        tmp_path,
        f"- {{at: 300 ms, every: 400 ms, run: [nft, -f, {rules}], window: 100 ms}}\n"
        f"- {{at: 2500 ms, name: move, run: '{moved}', where: host}}\n",
        forwarder="fault",
    )
    told = told_by(out)
    names = [event["name"] for event in told["events"]]
    failed = [row["message"] for row in told["warnings"] if row["code"] == "event-failed"]
    if failed:  # a busy machine comes to the last one too late, and says so
        assert failed == ["the event nft at 2.7 s was not begun: packets had ended"]
        names.append("nft")
    assert names == [*["nft"] * 6, "move", "nft"]
    assert {event["status"] for event in told["events"]} == {0}, told["events"]
    parts = [event["around"]["packets"] for event in told["events"]]
    assert sum(parts) + told["beside_events"]["packets"] == 30_000
    # One ends where the next begins.
    begins = [event["begin_ns"] for event in told["events"]]
    for event, following in zip(told["events"], begins[1:], strict=False):
        assert event["around"]["time_ns"] <= following - event["begin_ns"]


def test_what_fails_or_does_not_end_is_told(tmp_path: Path) -> None:
    out, printed = made(
        tmp_path,
        "- {at: 100 ms, name: wrong, run: [sh, -c, 'echo no such rule; exit 3']}\n"
        "- {at: 200 ms, name: long, run: sleep 600, where: generator}\n"
        "- {at: 300 ms, name: none, run: tt-no-such-program}\n",
        "['blocked(event) < 10 s']",
        duration="2 s",
    )
    told = told_by(out)
    messages = [row["message"] for row in told["warnings"] if row["code"] == "event-failed"]
    assert messages[0] == "the event wrong at 100 ms ended with status 3: no such rule"
    assert messages[1] == "the event long at 200 ms did not end"
    assert messages[2].startswith("the event none at 300 ms ended with status 127")
    assert "did not succeed" in printed
    [wrong, long, _] = told["events"]
    assert (wrong["output"], long["end_ns"]) == ("no such rule", None)


def test_what_is_in_a_container_has_its_ports(tmp_path: Path) -> None:
    event = "- {at: 100 ms, run: 'ip -o link show {ingress}'}"
    out, _ = made(tmp_path, event, platform="crun", duration="1 s")
    [event] = told_by(out)["events"]
    assert event["status"] == 0, event
    assert "tt-in" in event["output"]
