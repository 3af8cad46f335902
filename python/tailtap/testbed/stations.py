"""The station of each role of a testbed."""

from __future__ import annotations

from tailtap.measure.run import Stations
from tailtap.roles.here import Here
from tailtap.stations.session import Station
from tailtap.testbed.model import Testbed
from tailtap.testbed.ssh import SshStation


def stations_of(testbed: Testbed) -> Stations:
    """The stations by role: one object for each host, which is reached when it is asked first."""
    hosts: dict[str, Station] = {}
    for name, host in testbed.hosts.items():
        far = host.ssh is not None
        hosts[name] = SshStation(name, host, testbed.ssh_config) if far else Here()
    return {role: hosts[name] for role, name in testbed.roles.model_dump().items()}
