"""What tailtap reads and changes on a machine, and how that is undone."""
