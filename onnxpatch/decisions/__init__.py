"""Python asks a number or a tensor something while a model runs: where it asks, and what a graph needs as the answer.

Start reading at `place`; `if_rules` knows `if`s of which one side is always right. May import `formulas`, `messages`,
`_torch`.
"""
