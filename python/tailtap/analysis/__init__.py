"""From captures and run folders to statistics, models, causes and verdicts. Pure functions."""
