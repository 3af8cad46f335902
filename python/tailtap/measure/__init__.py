"""One run, the runner that makes all runs of an experiment, and what makes a run doubtful."""
