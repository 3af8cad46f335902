"""Pods of Kubernetes and of Podman: the network namespace that their containers share."""

from __future__ import annotations

from tailtap.base.errors import InputError
from tailtap.measure.observe.targets.containers import CRI, is_there, number, said
from tailtap.measure.observe.targets.kind import Place


class Pods:
    """A pod by its name."""

    form = "pod:NAME"
    words = "a pod of Kubernetes on this node (crictl), or of Podman, by its name"

    def find(self, name: str) -> Place:
        """That of the process which holds it."""
        if not name or "/" in name or name.startswith("-"):
            raise InputError(f"pod:{name}: this is no name of a pod")
        for program, ask in (("crictl", _of_cri), ("podman", _of_podman)):
            if is_there(program) and (pid := ask(name)):
                return Place(f"/proc/{pid}/ns/net", f"pod {name} of {program}", "container")
        raise InputError(
            f"pod:{name}: neither crictl nor podman runs one here: name a process of it, pid:NUMBER"
        )


def _of_cri(name: str) -> int | None:
    found = said(["crictl", "pods", "--quiet", "--state", "ready", "--name", f"^{name}$"]).split()
    return number(["crictl", "inspectp", *CRI, found[0]]) if found else None


def _of_podman(name: str) -> int | None:
    holder = said(["podman", "pod", "inspect", "--format", "{{.InfraContainerID}}", name])
    if not holder:
        return None
    return number(["podman", "container", "inspect", "--format", "{{.State.Pid}}", holder])
