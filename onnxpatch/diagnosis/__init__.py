"""Why a model does not export, or exports wrong: the smallest module at fault, its line, and what cures it.

`trials` exports a module or a part once, `parts` finds the smallest part that fails, `lines` the line and the cause,
`cures` what helps. May import `verification`, `patched`, `exporters` and below. Start at `parts.search.Search`.
"""
