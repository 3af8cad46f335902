"""Whether runs hold what is required of them, and how much they show.

The way of a requirement through the modules: `requirement` (text to value; `profiles` has named
ones) → `evidence` (what a run says) → `judge` (one requirement, one run; `shares` has the
statistics) → `runs` (many runs, and repeats) → `record` and `junit` (JSON and XML).
"""
