"""What stamps packets: one file a kind, one row in `TAPS` of `kinds.py`.

`links.py` and `hardware.py` are `tailtap tap`, which starts with what it needs alone.
"""
