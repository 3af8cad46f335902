"""The experiment file, and the plan of runs that follows from it."""
