"""Rules for `if`s of which one side is right at every size, so that no exporter has to freeze the example's answer.

Start reading at `answer`; `source` reads the code of the function that asks.
"""
