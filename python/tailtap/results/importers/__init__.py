"""Results of others, put beside our own runs."""
