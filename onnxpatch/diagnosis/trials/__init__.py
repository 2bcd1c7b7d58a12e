"""One export of one module or part, and its verdict."""
