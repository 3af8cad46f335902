"""The search for the highest rate that a device holds: its trials, and the answer from them.

`trial.py` has the terms: settings, a trial, its result. `methods.py` says what is tried next, and
which bounds follow. `answer.py` says how reliable these are. `conduct.py` makes the trials.
"""
