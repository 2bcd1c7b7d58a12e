"""Which part of a model fails by itself: parts are recorded in eager, exported alone, searched. Start at `search`."""
