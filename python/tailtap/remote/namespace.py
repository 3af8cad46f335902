"""A network namespace of this machine: its own interfaces, our own files and programs."""

from __future__ import annotations

from tailtap.remote.local import LocalHost


class NamespaceHost(LocalHost):
    """Commands run by ``ip netns exec``, which also shows the namespace's own sysfs."""

    def __init__(self, namespace: str) -> None:
        """A host for the existing network namespace `namespace`."""
        self.namespace = namespace
        self.prefix = ("ip", "netns", "exec", namespace)

    @property
    def name(self) -> str:
        """The host's name in messages."""
        return f"namespace {self.namespace}"
