"""Amplifies quiet sound, returns None for silence: an `if` on data, and an output that may be missing."""

import torch


class Leveller(torch.nn.Module):
    """float32 [B, T] to the levelled sound [B, T], or None where all samples are zero."""

    def __init__(self) -> None:
        super().__init__()
        self.smooth = torch.nn.Conv1d(1, 1, 5, padding=2)

    def forward(self, sound: torch.Tensor) -> torch.Tensor | None:
        peak = sound.abs().max()
        if peak == 0:
            return None
        if peak < 0.5:
            sound = sound / peak
        return self.smooth(sound[:, None])[:, 0]


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return Leveller().eval()
