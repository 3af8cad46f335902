"""The search for the highest rate that a device holds: its trials, and the answer from them.

`trial.py` has the terms: settings, a trial, its result, the bounds and how reliable they are.
`methods.py` says what is tried next, and which bounds follow. `conduct.py` makes the trials.
"""
