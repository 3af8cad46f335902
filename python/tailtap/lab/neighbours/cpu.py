"""`cpu`: a task that computes."""

from __future__ import annotations

from pydantic import BaseModel

from tailtap.lab.neighbours.options import Busy, Sharing


class Processor(Sharing):
    """It takes the core, and touches no memory."""

    summary = "Computes for a share of the time."
    documentation = "What it takes is the core alone: it touches no memory."
    unit = "ns of CPU time"
    Options: type[BaseModel] = Busy
