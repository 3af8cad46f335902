"""Containers and virtual machines of a machine, and control groups."""
