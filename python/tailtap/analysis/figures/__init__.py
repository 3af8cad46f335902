"""Figures as specifications, and the `figures` of an experiment file as these.

`kinds` says what a figure of each kind shows of a run, and `specification` what a drawer is given.
`model` is what a file asks for, and `arranging` makes a specification of it; `beside` adds what was
published. `tails` and `tables` are of many runs together. Nothing here draws.
"""
