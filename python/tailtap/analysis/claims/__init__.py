"""What an experiment claims, and what runs show of it.

`model.py` is a claim of an experiment file, and `judge.py` reads those of a folder and holds them
against runs.
"""
