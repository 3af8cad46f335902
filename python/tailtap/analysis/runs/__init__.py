"""Run folders and imported runs: where they are, what they hold, how they group."""
