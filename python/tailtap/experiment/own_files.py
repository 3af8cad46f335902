"""A DuT with files of its own, from an image or a folder: what else an experiment must say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailtap.base.document import KeyPath, Misfit
from tailtap.lab.forwarders import FORWARDERS
from tailtap.lab.platforms.contained import ContainedOptions
from tailtap.lab.platforms.vm import VmOptions

if TYPE_CHECKING:
    from tailtap.experiment.dut import Dut
    from tailtap.experiment.model import Experiment

COMMANDS = ("external", "server")
"""The forwarders that are a command of whoever measures."""


def has_own_files(dut: Dut) -> bool:
    """Whether a node has none of this machine's files, and so none of its programs."""
    settings = dut.settings
    if isinstance(settings, VmOptions):
        return settings.image is not None
    return isinstance(settings, ContainedOptions) and settings.has_own_files


def check_own_files(experiment: Experiment) -> None:
    """Raises `Misfit` for a forwarder that needs what a node does not have, or has no command."""
    for member in experiment.dut.members if experiment.traits.has_dut else ():
        dut, own = member.dut, has_own_files(member.dut)
        if dut.forwarder in COMMANDS:
            names_command = isinstance(dut.settings, ContainedOptions) and dut.given("image")
            _check_command(dut, own=own, image=own and bool(names_command))
        elif own and not FORWARDERS[dut.forwarder].in_kernel:
            raise Misfit(
                ("dut", "forwarder"),
                f"{dut.forwarder} is a program of this machine, which the image does not have: "
                f"take {' or '.join(COMMANDS)}, or a forwarder in the kernel",
                [("dut", "image"), ("dut", "root")],
            )


def _check_command(dut: Dut, *, own: bool, image: bool) -> None:
    command = dut.options.get("command")
    at: KeyPath = ("dut", "options")
    if command is None and not image:
        raise Misfit(
            at, "command is missing: only an image of a container (dut.image) has one of its own"
        )
    if "arguments" in dut.options and (command is not None or not image):
        raise Misfit(at, "arguments are for the command of an image: write all of it as command")
    if own and "{folder}" in str(command or dut.options.get("arguments")):
        raise Misfit(at, "{folder} is a folder of this machine, which the image does not see: name "
                     "one of the image's")  # fmt: skip
