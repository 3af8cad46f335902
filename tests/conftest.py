"""What all tests share."""

from __future__ import annotations

import gc
import os
import signal

import hypothesis

# What tests import stays. Looking through it for garbage took a third of the time to find them.
gc.set_threshold(100_000, 50, 50)

# A machine that has much else to do is no finding; what never ends meets pytest's own time limit.
# Continuous integration repeats the same few cases; everybody else tries new ones, and more.
hypothesis.settings.register_profile("tailtap", deadline=None)
hypothesis.settings.register_profile(
    "ci", hypothesis.settings.get_profile("tailtap"), derandomize=True, max_examples=30
)
hypothesis.settings.load_profile("ci" if "CI" in os.environ else "tailtap")

# A shell starts what it puts into its background with SIGINT ignored, nohup(1) with SIGHUP
# ignored, and programs that tests start inherit both. Tests interrupt programs by these signals.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
