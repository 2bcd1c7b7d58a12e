"""Finds why a model does not export, or exports wrong: the smallest module at fault, its line, and what cures it.

`trials` exports a module once and checks the graph; `parts` finds the smallest module that fails by itself; `lines`
finds the line and the kind of code there; `cures` tries patches, branches=True and other exporters on it.
`proof_trial` and `proof_unchanged` run the case of a patch's proof.
Start at `parts.search.Search`. May import `verification`, `patched`, `exporters` and below.
"""
