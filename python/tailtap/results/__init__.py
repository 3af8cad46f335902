"""Results of others read in, results written out, and the database over all runs."""
