"""What all tests share."""

from __future__ import annotations

import os

import hypothesis

# A machine that has much else to do is no finding; what never ends meets pytest's own time limit.
# Continuous integration repeats the same cases; everybody else tries new ones.
hypothesis.settings.register_profile("tailtap", deadline=None, derandomize="CI" in os.environ)
hypothesis.settings.load_profile("tailtap")
