"""What decides how an idle core sleeps, and which settings it listens to.

The kernel keeps files of drivers and governors that are not in use; they change nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tailtap.host.knobs.knob import Files
from tailtap.host.knobs.purpose import Purpose
from tailtap.host.knobs.tree import Absent, Tree

CPUIDLE = "/sys/devices/system/cpu/cpuidle"


def driver(tree: Tree) -> str:
    """The driver of idle states. Raises `Absent` where idle cores just halt."""
    found = tree.look(f"{CPUIDLE}/current_driver") or "none"
    if found == "none" and not tree.glob("/sys/devices/system/cpu/cpu[0-9]*/cpuidle/state*"):
        raise Absent("no cpuidle driver is in use: an idle core halts at once, whatever is set")
    return found


def governor(tree: Tree) -> str | None:
    """Who chooses among idle states; None where nobody says."""
    return tree.look(f"{CPUIDLE}/current_governor") or tree.look(f"{CPUIDLE}/current_governor_ro")


@dataclass(frozen=True)
class Driven(Files):
    """Files that only count while a driver of idle states, and perhaps this governor, is in use."""

    governor: str = ""

    def read(self, tree: Tree, purpose: Purpose) -> Mapping[str, str]:
        """The content of each file."""
        driver(tree)
        if self.governor and (found := governor(tree)) != self.governor:
            raise Absent(f"the governor {self.governor} is not in use, but {found or 'none'}")
        return super().read(tree, purpose)
