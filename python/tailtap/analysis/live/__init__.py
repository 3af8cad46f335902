"""Captures that are still being written, counted as they grow.

`written.py` says what of a capture is on the disk and until when; `counting.py` counts what became
of the packets since it looked last, by the matcher that evaluates whole captures, and keeps their
latencies in bounded memory. `numbers.py` has one record of all that, and what makes an incident.
"""
