"""What a result tree says of its hosts: roles, hardware, cables. Serial numbers stay out of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from tailtap.results.importers.pos.tree import Files, read_mapping

_IDENTITY = re.compile(r"(.*_)?serial|uuid|mac(_.*)?|asset_tag")


def hosts_of(files: Files, hosts: Iterable[str]) -> dict[str, dict[str, Any]]:
    """For each host its `role` and `image` where they are told, `hardware` and `topology`.

    Hardware is the content of `config/HOST/hardware.json` or `config/HOST.json`, without serial
    numbers and hardware addresses. A damaged file is a warning of the tree.
    """
    shared = files.variables.get("global")
    told = shared if isinstance(shared, dict) else {}
    return {host: _host(files, host, told) for host in hosts}


def _host(files: Files, host: str, told: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    nodes = told.get("nodes")
    node = nodes.get(host) if isinstance(nodes, dict) else None
    if isinstance(node, dict):
        found = {key: node[key] for key in ("role", "image") if key in node}
    if "role" not in found:
        roles = [name for name, value in told.items() if value == host]
        found |= {"role": roles[0]} if roles else {}
    config = files.root / "config"
    for key, paths in (
        ("hardware", (config / host / "hardware.json", config / f"{host}.json")),
        ("topology", (config / host / "topology.json",)),
    ):
        path = next((path for path in paths if path.is_file()), None)
        if path is None:
            continue
        try:
            found[key] = without_identity(read_mapping(path, files.root))
        except (OSError, ValueError) as error:
            files.damaged(path, str(error))
    return found


def without_identity(value: Any) -> Any:
    """A JSON value without what tells one machine from others of its kind."""
    if isinstance(value, dict):
        return {
            key: without_identity(inner)
            for key, inner in value.items()
            if not _IDENTITY.fullmatch(key.lower())
        }
    return [without_identity(inner) for inner in value] if isinstance(value, list) else value
