"""What is measured, and by what: topology, platforms, forwarders, generators, instruments."""
