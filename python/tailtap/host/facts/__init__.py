"""What is read of a machine, and never changed."""
