"""Keeps what torch and its exporters say by the way out of the tables that a benchmark prints."""

from __future__ import annotations

import logging
import warnings


def quiet() -> None:
    """No warnings and no lines of a log below an error, until the process ends."""
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
