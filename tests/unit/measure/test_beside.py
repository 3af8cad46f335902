"""Other measurements on this machine are seen, and what killed ones left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from children import speaking

from tailtap.host.changes.journal import Journal
from tailtap.host.changes.kernel_values import KernelValue
from tailtap.measure.beside import Beside, other_measurements
from tailtap.records.warnings import is_valid, notices

OTHER = """\
import sys
from pathlib import Path
from tailtap.host.changes.journal import Journal
journal = Journal.create(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_measurement_under_way_is_named_by_its_process(tmp_path: Path) -> None:
    ours = Journal.create(tmp_path)
    assert Beside.look(tmp_path) == Beside([], [])
    with speaking([sys.executable, "-c", OTHER, str(tmp_path)], stdin=subprocess.PIPE) as other:
        seen = Beside.look(tmp_path)
        assert seen.running == [other.pid]
        [sentence] = seen.sentences
        assert sentence.startswith(f"process {other.pid} of tailtap is measuring on this machine")
        [warning] = other_measurements(Beside([], []), seen)
        assert warning["code"] == "other-measurement"
        assert f"process {other.pid} " in warning["message"]
        assert is_valid(notices([warning]))
    # It changed nothing, so nothing is left of it.
    assert Beside.look(tmp_path) == Beside([], [])
    assert other_measurements(Beside([], []), Beside([], [])) == []
    ours.close()


def test_what_a_killed_measurement_left_leads_to_clean(tmp_path: Path) -> None:
    value = tmp_path / "value"
    value.write_text("0\n")
    child = os.fork()
    if child == 0:
        journal = Journal.create(tmp_path)
        change = KernelValue((str(value),), "1")
        journal.apply(journal.enter(change), change)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    seen = Beside.look(tmp_path)
    assert (seen.running, seen.ended) == ([], [child])
    [sentence] = seen.sentences
    assert sentence.startswith(f"process {child} of tailtap, which has ended, left ")
    assert "`sudo tailtap clean`" in sentence
    assert other_measurements(seen) == []
