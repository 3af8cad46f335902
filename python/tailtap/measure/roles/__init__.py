"""What a station can be in a measurement: one file for each role, one row in `here.ROLES`.

A role does on its station what it is asked to, and knows nothing of the other stations. All that
it needs comes in its plan, which is JSON, so that it works the same in the measuring process
(`here.py`) and at the other end of a stream (`remote/serving.py`).
"""
