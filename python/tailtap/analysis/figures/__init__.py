"""Figures that an experiment file asks for: what is drawn, as numbers.

A figure's way through the modules: `model` (the section `figures:`, checked) → `kinds` (what each
kind reads of a run) → `arranging` (panels, series, repeats) and `beside` (what others published) →
`show/report/asked`, which draws them. `tails` and `tables` are of many runs together.
"""
