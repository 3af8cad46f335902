"""What options are called in messages while a command runs: as the command declares them."""

from __future__ import annotations

import click

from tailtap.base.options import spelled


def as_option(name: str) -> str:
    """The option for the parameter `name`, of the command that runs if that has one."""
    context = click.get_current_context(silent=True)
    declared = context.command.params if context else ()
    return next((one.opts[0] for one in declared if one.name in (name, f"{name}_")), spelled(name))
