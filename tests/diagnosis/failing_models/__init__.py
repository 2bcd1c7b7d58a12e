"""Models with one part that cannot be exported, or exports wrong, among sound ones: what the doctor must find."""

from tests.diagnosis.failing_models.case import Ailing
from tests.diagnosis.failing_models.written import CASES

__all__ = ["CASES", "Ailing"]
