"""Numbers of a measurement that runs, for others: a page, and metrics for a monitoring system.

`server.py` answers on an address, `metrics.py` says the numbers as OpenMetrics and as protobuf;
`page/` is what a browser is given, which asks for the numbers each second.
"""
