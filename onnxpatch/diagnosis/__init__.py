"""Why a model does not export, or exports wrong: the smallest module at fault, its line, and what cures it.

May import `verification`, `patched`, `exporters` and below. Start reading at `search.Search`.
"""
