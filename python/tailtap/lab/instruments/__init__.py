"""What is observed during a run: one file for each instrument, one row in `INSTRUMENTS` of
`kinds.py`.

Taps (`taps/`) are instruments too; as what they see is the measurement, the timestamper runs them.
"""
