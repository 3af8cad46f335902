"""Scripts that run in a guest whose every program takes long to start."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from tailtap.remote.guest import GuestHost

COMMANDS = """
import json, os, sys, tempfile

import tailtap.cli.program, tailtap.experiment.model, tailtap.host.tuning.apply
import tailtap.measure.check, tailtap.measure.runner
from tailtap.cli import main


def tailtap(words):
    # A process that has imported everything already does what `tailtap WORDS` does.
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as said:
        child = os.fork()
        if child == 0:
            os.dup2(out.fileno(), 1)
            os.dup2(said.fileno(), 2)
            sys.argv = ["tailtap", *words]
            status = 70
            try:
                main()
            except SystemExit as end:
                status = end.code or 0
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        out.seek(0)
        said.seek(0)
        return {"status": status, "out": out.read(), "said": said.read()}
"""
"""What scripts share that call `tailtap`."""
CALLS = COMMANDS + "print(json.dumps([tailtap(words) for words in json.loads(sys.argv[1])]))\n"


def script(guest: GuestHost, text: str, *words: str, seconds: float = 30.0) -> Any:
    """What a Python script prints as JSON. Its output and errors are told when it fails."""
    command = [sys.executable, "-P", "-c", text, *words]
    done = guest.run(command, check=False, seconds=seconds)
    assert done.status == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def tailtaps(guest: GuestHost, *calls: Sequence[str]) -> list[dict[str, Any]]:
    """`tailtap` with the words of each call: the ``status``, what it puts ``out`` and ``said``."""
    answers: list[dict[str, Any]] = script(guest, CALLS, json.dumps(calls))
    return answers
