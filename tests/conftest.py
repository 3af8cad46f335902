"""What all tests share."""

from __future__ import annotations

import hypothesis

# A machine that has much else to do is no finding; what never ends meets pytest's own time limit.
hypothesis.settings.register_profile("tailtap", deadline=None)
hypothesis.settings.load_profile("tailtap")
