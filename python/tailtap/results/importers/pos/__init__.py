"""Result trees of the testbed service pos, and crates of its RISE profile, as runs."""
