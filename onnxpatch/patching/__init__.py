"""Patches: how one is declared, matched to a model, put in, run, and taken out again.

May import `formulas`, `inputs`, `_torch`, `errors`, `settings`. Start reading at `registry.patch`, then `plan`, `swap`
(classes) and `runtime` (functions).
"""
