"""What an experiment claims, and what runs show of it.

`model.py` is a claim of an experiment file, `reading.py` reads those of a folder, and `judge.py`
holds them against runs.
"""
