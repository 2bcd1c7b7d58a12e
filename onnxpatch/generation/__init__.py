"""The graphs that a generation loop runs, and the loop over them.

May import `export` and below. Start reading at `parts.generation_parts` for the files that are made, at `turns.Turns`
for the loop that runs them.
"""
