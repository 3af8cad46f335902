"""Clocks that stamped the same packets, and what is known of one by the other."""
