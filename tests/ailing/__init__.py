"""Models with one part that cannot be exported, or exports wrong, among sound ones: what the doctor must find."""

from tests.ailing.case import Ailing
from tests.ailing.written import CASES

__all__ = ["CASES", "Ailing"]
