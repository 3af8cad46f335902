"""How generator, taps and DuT are wired together."""
