"""Finds why a model does not export, or exports wrong: the smallest module at fault, its line, and what cures it.

`part_export` exports a module once and checks the graph, which gives a `trial.Trial`; `parts` finds the smallest module
that fails by itself; `lines` finds the line and the kind of code there; `treatment` tries patches, branches=True and
other exporters on it, by `proposals`. `proof_trial` runs the case of a patch's proof.
Start at `parts.search.Search`. May import `verification`, `patched`, `exporters` and below.
"""
