"""Being interrupted: once, whatever comes, and not where nobody asked for it."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import contextlib, os, signal, sys
from tailtap.measure.campaign import interruptible

def raised(number):
    try:
        os.kill(os.getpid(), number)
        return False
    except KeyboardInterrupt:
        return True

number = int(sys.argv[1])
if "ignored" in sys.argv:
    signal.signal(number, signal.SIG_IGN)
before = signal.getsignal(number)
with interruptible():
    with interruptible() if "nested" in sys.argv else contextlib.nullcontext():
        print(raised(number))
    print(raised(number))
print(signal.getsignal(number) == before)
"""


@pytest.mark.parametrize("how", ["alone", "nested"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_interrupts_and_no_other(number: signal.Signals, how: str) -> None:
    assert said(number, how) == ["True", "False", "True"]


def test_after_nohup_a_hangup_has_no_effect() -> None:
    assert said(signal.SIGHUP, "ignored") == ["False", "False", "True"]
    assert said(signal.SIGINT, "ignored") == ["True", "False", "True"]


def said(number: signal.Signals, *options: str) -> list[str]:
    """What the program prints, which sends itself the signal twice."""
    command = [sys.executable, "-c", PROGRAM, str(int(number)), *options]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
