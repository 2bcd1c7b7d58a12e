"""PESTO with the weights that its package ships: sound [B, T] at 16 kHz to pitch, confidence, volume and scores."""

import torch
from pesto import load_model


def model() -> torch.nn.Module:
    return load_model("mir-1k_g7", step_size=10.0, sampling_rate=16000)
