"""Boot loaders: where a kernel line of ours is put, so that the next boot takes it.

A loader is one file and one row in `LOADERS`. Each writes a single file of tailtap's own
(`boot_file.py`), and never changes one of somebody else's.
"""

from __future__ import annotations

from tailtap.base.errors import InputError, MachineError
from tailtap.base.suggest import did_you_mean
from tailtap.host.knobs.tree import Tree
from tailtap.host.loaders.grub import Grub
from tailtap.host.loaders.loader import Loader, variable
from tailtap.host.loaders.systemd_boot import SystemdBoot

LOADERS: dict[str, Loader] = {loader.name: loader for loader in (Grub(), SystemdBoot())}


def loader_of(tree: Tree, name: str | None = None) -> Loader:
    """The boot loader of a machine, or the one of that `name`.

    Raises `MachineError` when tailtap knows none of the machine's, and `InputError` when it cannot
    tell which one boots it, and for an unknown name.
    """
    if name is not None:
        if name not in LOADERS:
            raise InputError(f"there is no {name!r}: {did_you_mean(name, LOADERS)}").at("--loader")
        return LOADERS[name]
    there = [loader for loader in LOADERS.values() if loader.found(tree)]
    told = variable(tree, "LoaderInfo").lower()
    booted = [loader for loader in there if told.startswith(loader.name)]
    if len(booted or there) > 1:
        choice = " or ".join(f"--loader {loader.name}" for loader in there)
        raise InputError(f"this machine has several boot loaders: say {choice}")
    if not there:
        raise MachineError(
            "this machine has neither GRUB nor systemd-boot that tailtap knows: put the printed "
            "line on the kernel's command line by hand"
        )
    return (booted or there)[0]
