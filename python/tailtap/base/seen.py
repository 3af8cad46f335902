"""Results as a person sees them who computes with them, in a shell or a notebook."""

from __future__ import annotations

from importlib import import_module


class Seen:
    """What `tailtap.show.report.notebook` can show; that is loaded when somebody looks."""

    __slots__ = ()

    def __repr__(self) -> str:
        """A few lines."""
        return str(import_module("tailtap.show.report.notebook").text_of(self))

    def _repr_html_(self) -> str:
        """Tables, and a figure where there is a distribution to draw."""
        return str(import_module("tailtap.show.report.notebook").page_of(self))
