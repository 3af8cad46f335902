"""Network namespaces, links and network cards of a machine."""
