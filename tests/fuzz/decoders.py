"""What reads in this process: files that no command reads by itself, and what other hosts say."""

from __future__ import annotations

import io
import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

import numpy as np
from devices import Bench, sharp

from tailtap.base.errors import InputError, MachineError, TailtapError
from tailtap.bmc import serving
from tailtap.cli.search import print_answers
from tailtap.experiment.reading import read_experiment
from tailtap.host.changes.clean import find, unresolved
from tailtap.host.changes.journal import SUFFIX, machine_id, read_all
from tailtap.host.changes.kernel_values import KernelValue
from tailtap.host.changes.systemd import Folder
from tailtap.host.facts.machine import boot_id
from tailtap.host.net.namespaces import Link, Namespace
from tailtap.measure.campaign import Campaign
from tailtap.measure.search import Combination, Plan, Search
from tailtap.measure.search.methods import Trial, settings_of
from tailtap.measure.testbed.model import read_testbed
from tailtap.records.record import as_json, printed
from tailtap.records.search import TrialRow
from tailtap.remote.mux import CLOSE, DATA, HELLO, PIECE, Mux, ProtocolError, encode
from tailtap.remote.session import FAILED, told
from tailtap.remote.stream import Talk
from tailtap.results.importers.importable import DAMAGED
from tailtap.results.importers.tools import TOOLS, tool_of
from tailtap.results.importers.tools.hdr import encode as encode_histogram
from tailtap.results.importers.tools.reading import checked
from tailtap.results.importers.tools.runs import percentile_table
from tests.fuzz.mutations import mutated
from tests.fuzz.reader import SECONDS
from tests.fuzz.readers import TESTBED


@dataclass(frozen=True)
class Decoder:
    name: str
    whole: bytes
    """What is damaged, undamaged."""
    file: str
    """How it is damaged: as a file of this name."""
    decode: Callable[[bytes], object]

    def tried(self, number: int) -> tuple[str, str]:
        """How the case of this number ended, and what must not have been; empty where all held."""
        data = mutated(self.whole, self.file, Random(f"{self.name} {number}"))
        began = time.process_time()
        try:
            self.decode(data)
            outcome = "accepted"
        except (TailtapError, ProtocolError):
            outcome = "refused"
        except Exception as error:
            return "failed", f"{data[:2000]!r}: {error!r}"
        late = time.process_time() - began > SECONDS
        return outcome, f"{data[:2000]!r}: longer than {SECONDS} s" if late else ""


def in_file(
    name: str, read: Callable[[Path], object], beside: Mapping[str, str] | None = None
) -> Callable[[bytes], object]:
    """Reads bytes as a file of this name, that nobody else may read, beside others."""

    def decode(data: bytes) -> None:
        with tempfile.TemporaryDirectory() as folder:
            others = {other: text.encode() for other, text in (beside or {}).items()}
            for file, content in {**others, name: data}.items():
                Path(folder, file).touch(0o600)
                Path(folder, file).write_bytes(content)
            read(Path(folder, name))

    return decode


def _controllers(path: Path) -> None:
    json.dumps([asdict(one) for one in serving.read(path).served], default=str)


def _journal(path: Path) -> None:
    """What `tailtap clean --dry-run` finds in it; to undo it would change this machine."""
    json.dumps([asdict(item) for item in find(path.parent)], default=str)
    [record] = read_all(path.parent)
    unresolved(record)


def _statistics(data: bytes) -> None:
    """Results of another tool, such as statistics of TRex with a histogram of HdrHistogram."""
    text = data.decode("utf-8", "replace")
    try:
        for one in TOOLS[tool_of(text) or "TRex"].readings(text):
            percentile_table(checked(one))
    except DAMAGED as error:
        raise InputError(str(error)) from error


class _Resumed(Search):
    """A search that makes no trial: all that it was begun with is in its folder."""

    def _make(
        self, trial: Trial, combination: Combination, results: Sequence[TrialRow]
    ) -> TrialRow:
        raise MachineError(f"{trial} would be made")


def _search(data: bytes) -> None:
    """What `tailtap search --resume` does until it makes a trial."""
    with tempfile.TemporaryDirectory() as name:
        campaign = Campaign(Path(name), resume=True)
        (campaign.out / "search.json").write_bytes(data)
        file = campaign.folder.experiment
        file.write_text("name: known\ntraffic: {rate: 1 kpkt/s, duration: 1 s}\n")
        plan = Plan(read_experiment(file), file, SEARCH, shares=())
        search = _Resumed.of(plan, campaign)
        search.prepare()
        for combination in plan.checked.combinations:
            search.search(combination)
        search.end("done")
        printed(search.printed())
        with redirect_stdout(io.StringIO()):
            print_answers(search.record.answers)


def _stream(data: bytes) -> None:
    mux, talk = Mux(), Talk()
    talk.channel = mux.open("role", talk, role="dut", plan={})
    mux.receive(data)
    mux.take()


def _messages(data: bytes) -> None:
    frames = (encode(DATA, 0, 1, data[at : at + PIECE]) for at in range(0, len(data), PIECE))
    _stream(HELLO_FRAME + b"".join(frames))


def rows(*content: object) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in content)


HELLO_FRAME = encode(HELLO, 0, 0, b'{"protocol": 1}')
USERS = "admin: long and secret\noperator: '12345'\n"
CONTROLLERS = """\
credentials: bmc.users
machines:
  - {kind: lxc, name: web, listen: 6230}
  - {kind: libvirt, name: guest1, uri: "qemu:///system", listen: "127.0.0.1:6231"}
  - {kind: command, name: outlet 3, listen: "[::1]:623", status: a, switch_on: b, switch_off: c}
"""
SEARCH = settings_of((0.0, 0.5), 1_000, 500_000)


def search_record() -> bytes:
    """``search.json`` of a search that was interrupted behind its last trial."""
    bench = Bench(sharp(40_000), able=70_000)
    bench.search("mlr", SEARCH)
    return json.dumps(as_json(bench.record(SEARCH, [], "interrupted"))).encode()


MESSAGES = rows(
    {"id": 0, "answer": {}},
    {"id": 1, "failed": told(MachineError("no such card"))},
    {"event": {"event": FAILED, "reason": "it ended", "link": True}},
)
RESOURCES = (
    KernelValue(("/proc/sys/vm/swappiness",), "1", "number"),
    KernelValue(("/sys/devices/system/cpu/cpu*/x",), "x", "choice", optional=True),
    Folder("/nowhere/tt-0a1b2c-forwarder"),
    Namespace("tt-0a1b2c-gen"),
    Link("tt-0a1b2c-gen", "tt-0a1b2c-dut"),
)
JOURNAL = rows(
    {"owner": {"pid": os.getpid(), "started": 5}, "boot_id": boot_id(), "machine_id": machine_id(),
     "order": 3},
    *({"entry": {"number": number, "kind": one.kind, "name": one.label,
                 "resource": one.as_json(), "old": one.read(), "new": one.plan(),
                 "claims": list(one.claims), "survives": one.survives}}
      for number, one in enumerate(RESOURCES, 1)),
    {"applied": 1, "state": {"/proc/sys/vm/swappiness": "2"}},
    {"undone": 2},
    {"kept": True},
)  # fmt: skip


STATISTICS = json.dumps({"latency": {"5": {
    "err_cntrs": {"dropped": 3}, "latency": {"average": 21.5, "total_max": 641,
    "hdrh": encode_histogram(np.array([10, 20, 641]), np.array([900, 80, 15]))}},
    "6": {"latency": {"histogram": {"0": 5, "10": 900, "600": 15}}}}}).encode()  # fmt: skip
DECODERS = (
    Decoder("testbed file", TESTBED.encode(), "testbed.yaml",
            in_file("testbed.yaml", read_testbed)),
    Decoder("controllers", CONTROLLERS.encode(), "bmc.yaml",
            in_file("bmc.yaml", _controllers, {"bmc.users": USERS})),
    Decoder("credentials", USERS.encode(), "users.yaml", in_file("bmc.users", serving.read_users)),
    Decoder("search to resume", search_record(), "search.json", _search),
    Decoder("journal", JOURNAL, "rows.jsonl", in_file(f"1{SUFFIX}", _journal)),
    Decoder("stream", HELLO_FRAME + encode(DATA, 0, 1, MESSAGES) + encode(CLOSE, 0, 1, b"{}"), "",
            _stream),
    Decoder("results of a tool", STATISTICS, "trex.json", _statistics),
    Decoder("messages", MESSAGES, "rows.jsonl", _messages),
)  # fmt: skip
"""All of them."""
