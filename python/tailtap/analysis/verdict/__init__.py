"""Whether runs hold what is required of them, and how much they show.

The way of a requirement through the modules: `requirement` (text to value; named profiles) →
`evidence` (what a run says) → `judge` (one requirement, one run; `shares` has the statistics) →
`runs` (many runs, and repeats) → `junit` (XML).
"""
