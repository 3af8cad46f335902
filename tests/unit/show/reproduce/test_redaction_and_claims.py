"""What identifies is replaced; what is said of a published claim, and of trees of others."""

from __future__ import annotations

import json
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import zstandard
from comparisons import sample
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict
from program import in_process
from published import PUBLISHED, needs_published

from tailtap.analysis.runs.run import Run
from tailtap.base.errors import InputError
from tailtap.experiment.reading import demands_of, read_experiment, smallest
from tailtap.records.site import Difference, RedactedKind, ReproductionRecord
from tailtap.records.trace import Task
from tailtap.records.verdict import ClaimRow, Held
from tailtap.show.publish.redaction import Redactor
from tailtap.show.reproduce import Asked, reproduce
from tailtap.show.reproduce.claims import answer_claims, differences
from tailtap.show.reproduce.crate import crate_folder


def taught(*values: object, **settings: object) -> Redactor:
    redactor = Redactor(**settings)  # type: ignore[arg-type]
    for value in values:
        redactor.learn(value)
    return redactor


ALLOWED = "tulip at 8.8.8.8, 3c:fd:fe:a1:b2:c3, /home/ada"
KINDS: tuple[RedactedKind, ...] = ("hostnames", "addresses", "macs", "users")
REVIEW = "2026-03-14T15:09:26+00:00 by the Chair of Nets in /srv/ada/run/x.stamps, /proc/stat"
TULIP = {"hostname": "tulip.net.example.edu"}
REVIEWED: dict[str, Any] = {"anonymous": True, "hidden": ["Chair of Nets"]}


@pytest.mark.parametrize(
    ("learned", "settings", "text", "after"),
    [
        # A machine has one name in all its spellings; those with the same first name stay apart.
        ([TULIP], {}, "tulip, TULIP.net.example.edu and tulip.other.example.edu; not tulips",
         "host-1, host-1 and host-1; not tulips"),
        ([{"hostname": "www.one.edu"}, {"hostname": "www.two.edu"}], {}, "www.one.edu www.two.edu",
         "host-1 host-2"),
        # Packets of the experiment keep their addresses, and nobody else is given one of these.
        ([], {"kept_addresses": ["10.0.0.1-10.0.0.9", "fd00::1"]},
         "10.0.0.9 10.0.0.10 fd00::1 fd00::2", "10.0.0.9 192.0.2.1 fd00::1 2001:db8::1"),
        ([], {"kept_addresses": ["192.0.2.1"]}, "8.8.8.8 192.0.2.1 192.0.2.2",
         "192.0.2.2 192.0.2.1 192.0.2.3"),
        # Kinds that are allowed stay.
        ([{"hostname": "tulip"}, ALLOWED], {"allowed": KINDS}, ALLOWED, ALLOWED),
        # A review hears neither days nor folders nor what is hidden.
        ([REVIEW], REVIEWED, REVIEW,
         "2026-03-01T00:00:00+00:00 by the name-1 in /folder-1/x.stamps, /proc/stat"),
    ],
)  # fmt: skip
def test_what_identifies_is_replaced(
    learned: list[object], settings: dict[str, object], text: str, after: str
) -> None:
    assert taught(*learned, **settings).text(text) == after


def test_a_name_that_is_a_word_of_the_experiment_is_replaced_in_its_field_alone() -> None:
    record = {"environment": {"hostname": "vm"}, "parameters": {"dut": {"platform": "vm"}}}
    redactor = taught(record)
    assert redactor.json(record) == {
        "environment": {"hostname": "host-1"},
        "parameters": {"dut": {"platform": "vm"}},
    }
    assert redactor.ambiguous["hostnames"] == 1


@pytest.mark.parametrize(
    "text",
    [
        "0000:03:00.0",
        "14:05:30",
        "6.18.5",
        "firmware 9.30.0.1",
        "v22.11.0.4",
        "127.0.0.1:80",
        "ff:ff:ff:ff:ff:ff",
        "198.18.0.1 > 198.18.0.2",
        "0-3,8-11",
        "std::vector",
        "p99.999 < 1 ms",
        "root@host-1",
    ],
)
def test_what_only_looks_like_it_stays(text: str) -> None:
    assert Redactor().text(text) == text


def test_passwords_are_never_allowed() -> None:
    record = {"password": "hunter22"}
    redactor = taught(record, "login failed: hunter22")
    assert redactor.json(record) == {"password": "secret-1"}
    assert redactor.text("login failed: hunter22") == "login failed: secret-1"


def test_of_the_command_line_of_a_task_the_program_is_left() -> None:
    """Whoever had a traced core is no part of the experiment."""
    hog = Task(pid=5, command="/bin/mysql -ptulip", policy="OTHER", priority=0)
    kernel = Task(pid=6, policy="FIFO", priority=99)
    told = Redactor().json({"tasks": {"5": asdict(hog), "6": asdict(kernel)}})
    assert [task["command"] for task in told["tasks"].values()] == ["/bin/mysql", None]


def test_texts_of_tables_are_replaced_at_any_depth() -> None:
    table = pa.table(
        {
            "key": ["8.8.8.8 > 9.9.9.9", None, "8.8.8.8 > 9.9.9.9"],
            "parts": [[{"detail": "on tulip"}], [], None],
            "n": [1, 2, 3],
        }
    )
    after = taught({"hostname": "tulip"}).table(table)
    assert after.schema == table.schema
    assert after.to_pydict() == {
        "key": ["192.0.2.1 > 192.0.2.2", None, "192.0.2.1 > 192.0.2.2"],
        "parts": [[{"detail": "on host-1"}], [], None],
        "n": [1, 2, 3],
    }
    plain = table.select(["n"])
    assert Redactor().table(plain) is plain


MACS = st.binary(min_size=6, max_size=6).map(lambda raw: ":".join(f"{byte:02x}" for byte in raw))


@given(st.lists(MACS, max_size=20))
def test_equal_addresses_stay_equal_and_others_differ(macs: list[str]) -> None:
    named = Redactor().text(" ".join(macs)).split()
    pairs = {(one, name) for one, name in zip(macs, named, strict=True)}
    assert len(pairs) == len(set(macs)) == len(set(named))


OTHER = Difference(what="processor", there="a", here="b", machine=True)
NEWER = Difference(what="version of tailtap", there="1", here="2", machine=False)


def row(answer: Held, *, compares: bool = False) -> ClaimRow:
    return ClaimRow(id="claim-1", says="It is so.", test="p99 < 1 ms", answer=answer,
                    reason="so", compares=compares, evidence=[])  # fmt: skip


@pytest.mark.parametrize(
    ("there", "here", "compares", "different", "answer"),
    [
        ("held", "held", False, [OTHER], "reproduced"),
        ("held", "contradicted", False, [], "contradicted"),
        ("held", "contradicted", False, [NEWER], "contradicted"),
        # A requirement is about its machine, a comparison about what is compared.
        ("held", "contradicted", False, [OTHER], "not shown"),
        ("held", "contradicted", True, [OTHER], "contradicted"),
        ("held", "not shown", True, [], "not shown"),
        ("not shown", "held", True, [OTHER], "reproduced"),
        ("not shown", "not shown", True, [], "not shown"),
        ("contradicted", "held", True, [], "contradicted"),
    ],
)
def test_answers(
    there: Held, here: Held, compares: bool, different: list[Difference], answer: str
) -> None:
    again = row(there, compares=compares)
    (found,) = answer_claims([again], [again], [row(here, compares=compares)], different)
    assert found.answer == answer
    if answer == "not shown" and different:
        assert "on another machine (processor)" in found.reason


def machine(**more: Any) -> Run:
    environment = {
        "kernel": {"release": "6.18", "command_line": "root=/dev/vda quiet", "preemption": "none"},
        "cpu": {"model": "A", "governors": {"0": "performance"}, "isolated": "1"},
        "memory": 2**34, "versions": {"tailtap": "0.1"}, "hostname": "one", **more,
    }  # fmt: skip
    return sample("x", 1, 1000, more={"environment": environment})


def test_what_differs_between_machines() -> None:
    # Names, and where a disk is, are no difference; what nobody says is none either.
    same = machine(
        hostname="two", kernel={"release": "6.18", "command_line": "quiet root=/dev/sda"}
    )
    assert differences([machine()], [same]) == []
    other = machine(
        cpu={"model": "B", "governors": {"0": "powersave"}, "isolated": ""},
        versions={"tailtap": "0.2"},
    )
    found = differences([machine()], [other])
    assert [(one.what, one.there, one.here, one.machine) for one in found] == [
        ("processor", "A", "B", True),
        ("governors", "performance", "powersave", True),
        ("isolated CPUs", "1", "none", True),
        ("version of tailtap", "0.1", "0.2", False),
    ]


def test_smallest_scale_and_commands(tmp_path: Path) -> None:
    file = tmp_path / "e.yaml"
    file.write_text("""\
name: scales
dut: {cpus: [1]}
traffic: {rate: 1 kpkt/s, duration: 10 s, cpu: 0}
scales:
  long: {traffic.duration: 60 s}
  short: {traffic.duration: 1 s, repeat: 3}
events: [{at: 100 ms, run: [ip, link]}]
""")
    assert smallest(file, []) == ["scale=short"]
    assert smallest(file, ["repeat=1"]) == ["scale=short", "repeat=1"]
    assert demands_of(read_experiment(file)) == ["events: ip link"]


@pytest.mark.parametrize(
    ("dut", "demand"),
    [
        ("", ""),
        ("forwarder: fault, options: {hold: {ids: [1], time: 10 us}}", ""),
        ("platform: vm, memory: 1 GB", ""),
        ("ports: [eno1, eno2]", "dut.ports: eno1, eno2"),
        ("tuning: runtime", "dut.tuning: runtime"),
        ("tuning: {without: timers}", "dut.tuning"),
        ("platform: vm, huge_pages: true", "dut.huge_pages: True"),
        ("platform: container, image: docker.io/x", "dut.image: docker.io/x"),
        ("platform: container, root: /", "dut.root: /"),
        ("platform: vm, boot: isolcpus=1", "dut.boot: isolcpus=1"),
        ("forwarder: nftables, options: {rules: rules}", "dut.options.rules: rules"),
        ("forwarder: testpmd, options: {huge_pages: true}", "dut.options.huge_pages: True"),
    ],
)
def test_what_an_experiment_of_others_takes_of_the_machine(
    tmp_path: Path, dut: str, demand: str
) -> None:
    file = tmp_path / "e.yaml"
    file.write_text(
        f"name: a\ndut: {{cpus: [1], {dut}}}\n"
        "traffic: {rate: 1 kpkt/s, duration: 1 s, cpu: 0}\n"
        + ("tap: {ports: [eno3, eno4]}\n" if "ports" in dut else "")
    )
    found = demands_of(read_experiment(file))
    assert bool(found) == bool(demand) and demand in "; ".join(found), found


CONTENT = b"a result"
FILES = {
    "scripts/dut/2026-01-01_10-00-00_000000_send_run0.loop": b'{"pkt_rate": 1000}',
    "config/allocation.json": b"{}",
    "files/dut/logs_run0/more.txt": b"more",
    "alone.txt": b"alone",
}


def write_crate(folder: Path) -> Path:
    for name, content in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / "result.csv").write_bytes(CONTENT)
    loop = next(iter(FILES))
    graph = [
        {"@id": "./", "@type": "Dataset", "name": "A crate"},
        {"@id": "result.csv", "@type": "File", "contentSize": str(len(CONTENT)),
         "sha256": sha256(CONTENT).hexdigest()},
        {"@id": loop, "@type": "LoopRun", "contentSize": str(len(FILES[loop]))},
        {"@id": "files/dut/logs_run0/", "@type": "Dataset"},
    ]  # fmt: skip
    (folder / "ro-crate-metadata.json").write_text(json.dumps({"@graph": graph}))
    return folder


def command(crate: Path | str) -> tuple[int, str, str]:
    """Status of `tailtap reproduce`, its first and its last line."""
    run = in_process("reproduce", crate, "--quiet")
    assert run.stderr == ""
    lines = run.stdout.splitlines()
    return run.returncode, lines[0], lines[-1]


def told(found: ReproductionRecord) -> dict[str, str]:
    return {one.what: one.reason for step in found.steps for one in step.findings}


def test_a_crate(tmp_path: Path) -> None:
    crate = write_crate(tmp_path / "crate")
    found = reproduce(tmp_path, "given", Asked())
    assert (found.kind, found.name, found.answer) == ("crate", "A crate", "not shown")
    assert found.about[-1].startswith("entities: 4, with 0 ExperimentNode")
    said = told(found)
    assert "has no checksum" in said[next(iter(FILES))]
    assert "is named by no entity" in said["alone.txt"]
    assert "has none of its own" in said["files/dut/logs_run0/more.txt"]
    assert "result.csv" not in said and said["latencies"].startswith("1 of 1 runs")
    title = "A crate: crate of the RISE profile"
    assert command(f"file://{crate}") == (5, title, "answer: not shown")
    (crate / "result.csv").write_bytes(b"A result")
    assert command(crate) == (1, title, "answer: contradicted")
    (crate / next(iter(FILES))).write_bytes(b"{}")
    said = told(found := reproduce(tmp_path, "given", Asked()))
    assert found.answer == "contradicted" and "it was changed" in said["result.csv"]
    assert "it has 2 B, and the crate says 18 B" in said[next(iter(FILES))]
    (crate / "result.csv").unlink()
    assert (
        "is missing: the crate names it" in told(reproduce(crate, "given", Asked()))["result.csv"]
    )


def test_one_crate_is_asked_for(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_crate(tmp_path / name)
    with pytest.raises(InputError, match="it holds 2 crates: give one of"):
        crate_folder(tmp_path)
    with pytest.raises(InputError, match="only a site of `tailtap publish` says how"):
        reproduce(tmp_path / "one", "given", Asked("small"))


@needs_published
def test_the_crate_of_the_profile() -> None:
    found = reproduce(PUBLISHED.parent / "rise", "rise", Asked())
    assert (found.kind, found.answer) == ("crate", "not shown")
    assert "entities: 856, with 2 ExperimentNode, 17 CommandFile, 144 LoopRun" in found.about
    assert found.steps[0].checked == 693 and found.steps[1].checked == 72
    assert set(told(found)) == {"693 files", "264 files", "latencies"}


@needs_published
def test_published_files_agree_and_a_changed_number_is_found(tmp_path: Path) -> None:
    tree = Path(shutil.copytree(PUBLISHED / "cgroups-nfv/measurements/v1", tmp_path / "v1"))
    found = reproduce(tree, "v1", Asked())
    assert (found.kind, found.answer, found.steps[0].findings) == ("results", "reproduced", [])
    (file,) = tree.glob("*.percentiles.csv.zst")
    change(file, b",5045,", b",5145,")
    (file,) = tree.glob("*.worst.csv.zst")
    latency, before, *more = zstandard.decompress(file.read_bytes()).splitlines()[1].split(b",")
    sooner = [b"%d" % (int(latency) - 1000), b"%d" % (int(before) + 1000), *more]
    change(file, b",".join([latency, before, *more]), b",".join(sooner))
    found = reproduce(tree, "v1", Asked())
    (said,) = told(found).values()
    assert found.answer == "contradicted"
    assert "1 of 275 percentiles are not where its histogram ends" in said
    assert "the worst packets are not the end of its histogram" in said


def change(file: Path, old: bytes, new: bytes) -> None:
    text = zstandard.decompress(file.read_bytes())
    assert old in text
    file.write_bytes(zstandard.compress(text.replace(old, new, 1)))


@needs_published
def test_the_printed_table() -> None:
    found = reproduce(PUBLISHED / "containerized-low-latency", "tree", Asked())
    files, table = found.steps
    assert (files.answer, files.checked) == ("reproduced", 28)
    assert (table.answer, table.checked) == ("contradicted", 8)
    said = told(found)
    assert (
        "1,231.92 us where 659.25 is printed"
        in said["container, user space, vanilla, non-optimized"]
    )
    assert len(said) == 3
