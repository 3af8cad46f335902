"""Which drivers of DPDK a machine has."""

from __future__ import annotations

from collections.abc import Sequence

from tailtap.base.errors import MachineError
from tailtap.remote import Host

# Debian has a package for each driver; elsewhere they may be part of the program.
_DRIVER = """for folder in /usr/lib/*/dpdk/pmds-*; do
    [ -d "$folder" ] || exit 0
    for name in "$@"; do
        ls "$folder/librte_$name.so"* > /dev/null 2>&1 || { echo "$name"; exit 1; }
    done
done"""


def require_drivers(host: Host, names: Sequence[str]) -> None:
    """Raises `MachineError` when a driver, such as ``net_vhost``, is missing on `host`."""
    asked = host.run(["sh", "-c", _DRIVER, "drivers", *names], check=False)
    if asked.status != 0:
        name = asked.stdout.strip()
        raise MachineError(
            f"DPDK's driver {name} is missing on {host.name}: apt-get install "
            f"librte-{name.replace('_', '-')}23, or run `make forwarders`"
        )
