"""Python asks a number or a tensor something while a model runs: where it asks, and what a graph needs as the answer.

Start reading at `ask`, the order of those who answer and the line that asks; `if_rules` knows `if`s of
which one side is always right. May import `formulas`, `messages`, `_torch`.
"""
