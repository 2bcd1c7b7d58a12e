"""Patches: how one is declared, matched to a model, swapped in, run, and taken out again.

May import `formulas`, `inputs`, `_torch`, `errors`, `settings`. Start reading at
`registry.patch`, then `plan` and `swap`.
"""
