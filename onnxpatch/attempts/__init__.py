"""The attempts of one `export`: what is tried, in which order, and which one is delivered.

All attempts share one reference (the unpatched model is asked once), one budget and one snapshot of the model's state.
May import `diagnosis`, `verification`, `patched`, `exporters` and below. Start reading at `next_attempt.next_attempt`,
which reads the failures so far; `export` makes attempts until one is right.
"""
