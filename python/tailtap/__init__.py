"""tailtap: measure, explain and predict the tail latency of packet processing."""

from __future__ import annotations


def __getattr__(name: str) -> str:
    """`__version__`, looked up when asked for: reading the metadata takes time."""
    if name == "__version__":
        from importlib.metadata import version

        return version("tailtap")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
