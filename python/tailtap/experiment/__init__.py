"""The experiment file, the plan, the runner and the run folder."""
