"""PatchTST of transformers: the past of 3 series [B, 64, 3] to the next 16 values of each [B, 16, 3]."""

import torch
import transformers


class Forecast(torch.nn.Module):
    """The forecast as a tensor."""

    def __init__(self) -> None:
        super().__init__()
        config = transformers.PatchTSTConfig(
            num_input_channels=3, context_length=64, prediction_length=16, d_model=32, ffn_dim=64,
            num_hidden_layers=2, num_attention_heads=4,
        )  # fmt: skip
        self.model = transformers.PatchTSTForPrediction(config)

    def forward(self, past_values: torch.Tensor) -> torch.Tensor:
        return self.model(past_values).prediction_outputs


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return Forecast().eval()
