"""The graphs that a generation loop runs: which there are, their inputs by name, an example for each.

May import `inputs`, `errors`. Start reading at `parts.generation_parts`.
"""
