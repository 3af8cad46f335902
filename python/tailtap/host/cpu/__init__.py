"""The CPUs of a machine: which there are, what runs on them, and how caches are divided."""
