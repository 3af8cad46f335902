"""`tailtap improve`: try the knobs that answer the causes found, and keep those that help.

The way through the modules: `settings` (what is asked) → `conduct` (stages: why packets are late
now, and whether the requirement holds) → `candidates` (which knobs answer that) → `trials` (one of
them, with and without, in pairs of runs) → `conduct`, which keeps it or does not.
"""
