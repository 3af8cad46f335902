"""Started commands: events, endings, errors."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tailtap.base.errors import MachineError
from tailtap.remote import CommandFailed
from tailtap.remote.local import LocalHost, Process

PATIENCE_SECONDS = 60.0
UNTIL_INTERRUPTED = """
import json, signal, sys
def stop(*_):
    print(json.dumps({"event": "done", "seen": 3}), flush=True)
    sys.exit(0)
signal.signal(signal.SIGINT, stop)
print("some chatter", flush=True)
print(json.dumps({"event": "ready"}), flush=True)
while True:
    signal.pause()
"""


@contextmanager
def python(code: str) -> Iterator[Process]:
    process = Process([sys.executable, "-c", code], "the child")
    try:
        yield process
    finally:
        process.close()


def test_events_and_a_polite_end() -> None:
    with python(UNTIL_INTERRUPTED) as child:
        assert child.expect("ready", PATIENCE_SECONDS) == {"event": "ready"}
        assert not child.ended
        child.interrupt()
        assert child.expect("done", PATIENCE_SECONDS)["seen"] == 3
        child.close()
        assert child.ended


def test_a_child_can_be_interrupted_though_we_are_in_a_shell_s_background() -> None:
    """There SIGINT is ignored, which children inherit."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        child = Process(["sh", "-c", "echo ready; exec sleep 60"], "the child")
    finally:
        signal.signal(signal.SIGINT, before)
    try:
        assert child.read_line(PATIENCE_SECONDS) == "ready"
        child.interrupt()
        child.wait(PATIENCE_SECONDS)
        assert child.status == -signal.SIGINT
    finally:
        child.close()


TELLS = "import sys; print('tailtap: no such\\n interface', file=sys.stderr); sys.exit(3)"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (TELLS, "the child ended with status 3: no such interface"),
        ("import os; os.kill(os.getpid(), 9)", "the child was ended by SIGKILL"),
    ],
)
def test_an_early_end_is_explained(code: str, said: str) -> None:
    with python(code) as child, pytest.raises(MachineError) as caught:
        child.expect("ready", PATIENCE_SECONDS)
    assert str(caught.value) == said


def test_waiting_ends() -> None:
    with python("import signal; signal.pause()") as child:
        with pytest.raises(MachineError, match=r"no 'ready' event within 0\.1 s"):
            child.expect("ready", 0.1)
        assert not child.ended


def test_a_child_that_does_not_listen_is_ended() -> None:
    code = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); print('{\"event\": 1}',"
    with python(f"{code} flush=True); signal.pause()") as child:
        child.read_line(PATIENCE_SECONDS)
        child.interrupt()
        child.close()
        assert child.ended


def test_an_object_over_several_lines() -> None:
    with python("import json; print(json.dumps({'a': [1, 2]}, indent=2))") as child:
        assert child.read_object(PATIENCE_SECONDS) == {"a": [1, 2]}
    with python("print('nothing')") as child, pytest.raises(MachineError, match="status 0"):
        child.read_object(PATIENCE_SECONDS)


def test_more_errors_than_a_pipe_holds_do_not_block() -> None:
    code = "import sys; sys.stderr.write('x' * 1_000_000); print('{\"event\": \"ready\"}')"
    with python(code) as child:
        child.expect("ready", PATIENCE_SECONDS)


def test_available_lines() -> None:
    with python("import signal; print('a\\nb\\nc', end='', flush=True); signal.pause()") as child:
        lines: list[str] = []
        while len(lines) < 2:
            lines += child.read_available() or []
        assert lines == ["a", "b"]


def test_commands_fail_with_one_line() -> None:
    host = LocalHost()
    with pytest.raises(CommandFailed) as caught:
        host.run(["sh", "-c", "echo one >&2; echo two >&2; exit 5"])
    assert str(caught.value).endswith("failed: one two")
    assert host.run(["sh", "-c", "exit 5"], check=False).status == 5
    assert host.run(["cat"], stdin="hello").stdout == "hello"
    with pytest.raises(MachineError, match="no-such-program is missing"):
        host.run(["no-such-program"])
