"""The table of knobs in the formats of programs that tune hosts.

A format is one file and one row in `FORMATS`. Each writes what it can set, with the reason as a
comment, and names what it leaves.
"""

from __future__ import annotations

from tailtap.host.tuning.exports import ansible, sysctl, tuned
from tailtap.host.tuning.exports.content import Format

FORMATS: dict[str, Format] = {
    "tuned": tuned.write,
    "sysctl": sysctl.write,
    "ansible": ansible.write,
}
