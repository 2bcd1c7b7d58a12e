"""Time series and tables, tiny: transformers', iTransformer, tab-transformer, tabnet, temporal convolutions."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import torch

from benchmarks.case import Args, Case, randomise
from benchmarks.transformers_models import Keyword, made, sized

LIBRARIES = ("transformers", "itransformer", "tab-transformer-pytorch", "pytorch-tabnet", "pytorch-tcn", "mambapy")
LEFT_OUT = {
    "the predictions of autoformer, informer, time_series_transformer": "sampled; their encoders and decoders are cases"
}
BATCH = {0: "batch"}
SERIES = dict(prediction_length=4, context_length=12, input_size=1, lags_sequence=[1, 2, 3], num_time_features=2,
              d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2,
              encoder_ffn_dim=16, decoder_ffn_dim=16)  # fmt: skip
PATCHES = dict(num_input_channels=2, context_length=24, patch_length=4, patch_stride=4, num_hidden_layers=2,
               d_model=16, num_attention_heads=2, ffn_dim=32, prediction_length=6)  # fmt: skip
MIXER = dict(num_input_channels=2, context_length=24, patch_length=4, patch_stride=4, num_layers=2, d_model=16,
             prediction_length=6)  # fmt: skip


def forecaster(auto: str, kind: str, names: str, field: str, make: Callable[..., Args], *,
               sizes: Sequence[tuple[int, ...]] = ((2,), (3,), (1,)), shapes: Any = None,
               call: dict[str, Any] | None = None, **options: Any) -> Callable[[], Case]:  # fmt: skip
    """A model of transformers; its context has one length, so that the batch alone is dynamic unless told."""
    build = lambda: Keyword(made(auto, kind, **options), names.split(), field.split(), **(call or {}))  # noqa: E731
    return lambda: sized(build(), make, sizes, shapes or (BATCH,) * len(names.split()))


def history(batch: int) -> Args:
    """Values, time features and what was observed over context and lags, then the future to predict."""
    length = 12 + 3
    observed = (torch.rand(batch, length) > 0.2).float()
    return (torch.randn(batch, length), torch.randn(batch, length, 2), observed, torch.randn(batch, 4),
            torch.randn(batch, 4, 2))  # fmt: skip


def plain(*shape: int) -> Callable[..., Args]:
    return lambda batch: (torch.randn(batch, *shape),)


def observed(batch: int) -> Args:
    return torch.randn(batch, 24, 2), torch.rand(batch, 24, 2) > 0.2


def library(path: str, make: Callable[..., Args], sizes: Sequence[tuple[int, ...]], shapes: Any, *before: Any,
            **options: Any) -> Callable[[], Case]:  # fmt: skip
    """``package.Class`` built from ``options``."""

    def build() -> Case:
        module, _, cls = path.rpartition(".")
        return sized(randomise(getattr(importlib.import_module(module), cls)(*before, **options)), make, sizes, shapes)

    return build


def mamba() -> Case:
    from mambapy.mamba import Mamba, MambaConfig

    made = Mamba(MambaConfig(d_model=16, n_layers=1, d_state=4))
    return sized(randomise(made), lambda b, n: (torch.randn(b, n, 16),), ((2, 8), (3, 8), (1, 1), (2, 20)),
                 ({0: "batch", 1: "length"},))  # fmt: skip


def row(batch: int) -> Args:
    return torch.randint(0, 4, (batch, 3)), torch.randn(batch, 5)


def decisions(batch: int, length: int) -> Args:
    return (torch.randn(batch, length, 5), torch.randn(batch, length, 3), torch.randn(batch, length, 1),
            torch.arange(length).expand(batch, length).contiguous(), torch.ones(batch, length))  # fmt: skip


STEPS = {0: "batch", 1: "steps"}
PAST = "past_values past_time_features past_observed_mask future_values future_time_features"
ROWS = ((4,), (1,), (9,))
INVERTED = dict(num_variates=3, lookback_len=16, depth=1, dim=16, pred_length=(4, 8), dim_head=8, heads=2)
TABLE = dict(categories=(4, 4, 4), num_continuous=5, dim=16, depth=1, heads=2, dim_head=8)
TABNET = dict(input_dim=6, output_dim=2, n_d=4, n_a=4, n_steps=2, group_attention_matrix=torch.eye(6))

CASES: dict[str, Callable[[], Case]] = {
    "time_series_transformer": forecaster("TimeSeriesTransformerModel", "time_series_transformer", PAST,
                                          "last_hidden_state loc scale", history, **SERIES),
    "informer": forecaster("InformerModel", "informer", PAST, "last_hidden_state loc scale", history,
                           attention_type="full", **SERIES),
    "autoformer": forecaster("AutoformerModel", "autoformer", PAST, "last_hidden_state trend", history,
                             label_length=4, moving_average=3, **SERIES),
    "patchtst": forecaster("PatchTSTForPrediction", "patchtst", "past_values past_observed_mask", "prediction_outputs",
                           observed, **PATCHES),
    "patchtst_channels": forecaster("PatchTSTForPrediction", "patchtst", "past_values past_observed_mask",
                                    "prediction_outputs", observed, channel_attention=True, use_cls_token=True,
                                    **PATCHES),
    "patchtst_classifier": forecaster("PatchTSTForClassification", "patchtst", "past_values", "prediction_logits",
                                      plain(24, 2), num_targets=3, **PATCHES),
    "patchtsmixer": forecaster("PatchTSMixerForPrediction", "patchtsmixer", "past_values observed_mask",
                               "prediction_outputs", observed, **MIXER),
    "patchtsmixer_gated": forecaster("PatchTSMixerForPrediction", "patchtsmixer", "past_values", "prediction_outputs",
                                     plain(24, 2), self_attn=True, mode="mix_channel", gated_attn=True, **MIXER),
    "timesfm": forecaster("TimesFmModel", "timesfm", "past_values past_values_padding freq", "last_hidden_state",
                          lambda b, n: (torch.randn(b, n), torch.zeros(b, n).long(),
                                        torch.zeros(b, 1).long()),
                          sizes=((2, 24), (3, 24), (1, 8), (2, 64)),
                          shapes=({0: "batch", 1: "length"}, {0: "batch", 1: "length"}, BATCH), patch_length=8,
                          context_length=64, horizon_length=4, num_hidden_layers=1, hidden_size=16,
                          intermediate_size=32, head_dim=8, num_attention_heads=2),
    "decision_transformer": forecaster("DecisionTransformerModel", "decision_transformer",
                                       "states actions returns_to_go timesteps attention_mask",
                                       "state_preds action_preds return_preds", decisions,
                                       sizes=((2, 5), (3, 5), (1, 1), (2, 12)), shapes=(STEPS,) * 5, state_dim=5,
                                       act_dim=3, hidden_size=32, max_ep_len=64, n_layer=2, n_head=2,
                                       call=dict()),
    "itransformer": library("iTransformer.iTransformer", plain(16, 3), ((2,), (3,), (1,)), (BATCH,),
                            use_reversible_instance_norm=True, **INVERTED),
    "itransformer_2d": library("iTransformer.iTransformer2D", plain(16, 3), ((2,), (3,), (1,)), (BATCH,),
                               num_time_tokens=4, **INVERTED),
    "itransformer_fft": library("iTransformer.iTransformerFFT", plain(16, 3), ((2,), (3,), (1,)), (BATCH,),
                                **INVERTED),
    "tab_transformer": library("tab_transformer_pytorch.TabTransformer", row, ROWS, (BATCH, BATCH),
                               mlp_act=torch.nn.ReLU(), **TABLE),
    "ft_transformer": library("tab_transformer_pytorch.FTTransformer", row, ROWS, (BATCH, BATCH), **TABLE),
    "tabnet": library("pytorch_tabnet.tab_network.TabNet", plain(6), ROWS, (BATCH,), **TABNET),
    "tabnet_entmax": library("pytorch_tabnet.tab_network.TabNet", plain(6), ROWS, (BATCH,), mask_type="entmax",
                             **TABNET),
    "tabnet_categories": library("pytorch_tabnet.tab_network.TabNet",
                                 lambda b: (torch.cat([torch.randn(b, 4), torch.randint(0, 3, (b, 2)).float()], 1),),
                                 ROWS, (BATCH,), cat_idxs=[4, 5], cat_dims=[3, 3], cat_emb_dim=[2, 2], **TABNET),
    "tcn": library("pytorch_tcn.TCN", lambda b, n: (torch.randn(b, 3, n),), ((2, 16), (3, 16), (1, 1), (2, 40)),
                   ({0: "batch", 2: "length"},), 3, [8, 8], kernel_size=3),
    "tcn_weight_norm": library("pytorch_tcn.TCN", lambda b, n: (torch.randn(b, 3, n),),
                               ((2, 16), (3, 16), (1, 5), (2, 40)), ({0: "batch", 2: "length"},), 3, [8, 8],
                               kernel_size=3, causal=False, use_norm="weight_norm", use_skip_connections=True),
    "mamba": mamba,
}  # fmt: skip
