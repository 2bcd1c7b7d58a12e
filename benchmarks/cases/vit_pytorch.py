"""vit-pytorch: every model of the package that eager runs, tiny; batch, and sizes where eager takes others, dynamic."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from benchmarks.case import Case, at_sizes, image, randomise, video

LIBRARIES = ("vit-pytorch", "torchvision")
CASES: dict[str, Callable[[], Case]] = {}

PATCH = {"image_size": 32, "patch_size": 8, "num_classes": 10, "dim": 32, "heads": 2, "mlp_dim": 64, "dim_head": 16}
VIT = {**PATCH, "depth": 2}
LOOPED = {**PATCH, "pre_loop_depth": 1, "num_looped_blocks": 1, "post_loop_depth": 1, "loop_depth": 2}
VIDEO = {"image_size": 32, "image_patch_size": 8, "frames": 4, "frame_patch_size": 2, "num_classes": 10, "dim": 32,
         "heads": 2, "mlp_dim": 64, "dim_head": 16}  # fmt: skip
VIVIT = {**VIDEO, "spatial_depth": 1, "temporal_depth": 1}
ND = {"num_classes": 10, "dim": 32, "depth": 2, "heads": 2, "mlp_dim": 64, "dim_head": 16}
ND2 = {**ND, "ndim": 2, "input_shape": 32, "patch_size": 8}
ND3 = {**ND, "ndim": 3, "input_shape": (4, 32, 32), "patch_size": (2, 8, 8)}
CCT = {"img_size": 32, "embedding_dim": 32, "n_conv_layers": 1, "kernel_size": 3, "stride": 2, "padding": 1,
       "num_layers": 2, "num_heads": 2, "mlp_ratio": 2.0, "num_classes": 10}  # fmt: skip
ACTION = {"dim": 32, "depth": 2, "heads": 2, "dim_head": 16, "mlp_dim": 64, "dim_action": 5, "action_chunk_len": 3,
          "time_seq_len": 2, "num_tasks": 4, "dim_extra_token": 7, "self_attn_heads": 2,
              "self_attn_dim_head": 16}  # fmt: skip
AST = {"dim": 32, "mlp_dim": 64, "num_classes": 5, "patch_size": 8, "dim_head": 16, "heads": 2, "accept_spec": True}
SIDES = ((64, 96), (96, 64), (32, 64), (128, 128))
DOUBLES = ((64, 128), (128, 64), (128, 128))
LEVIT = {"image_size": 64, "num_classes": 10, "stages": 2, "dim": (32, 48), "depth": 1, "heads": (2, 2), "mlp_mult": 2,
         "dim_key": 16, "dim_value": 16}  # fmt: skip
LEVIT_SIDES = ((64, 96), (128, 128), (48, 64), (32, 32))
MAXVIT = {"num_classes": 10, "dim": 16, "depth": (1, 1), "dim_head": 16, "dim_conv_stem": 16, "window_size": 4}
REGION = {"dim": (16, 16, 32, 32), "depth": (1, 1, 1, 1), "window_size": 2, "num_classes": 10}
TWINS = {"num_classes": 10, "s1_emb_dim": 16, "s1_patch_size": 2, "s1_local_patch_size": 4, "s1_global_k": 4,
    "s1_depth": 1,
         **{f"s{i}_{key}": value for i in (2, 3, 4) for key, value in
            {"emb_dim": 32, "patch_size": 2, "local_patch_size": 2, "global_k": 2, "depth": 1}.items()}}  # fmt: skip
CVT = {"num_classes": 10, "s1_emb_dim": 16, "s1_depth": 1, "s1_heads": 1, "s2_emb_dim": 32, "s2_heads": 2,
    "s2_depth": 1,
       "s3_emb_dim": 48, "s3_heads": 2, "s3_depth": 1}  # fmt: skip
CROSS_VIT = {"image_size": 32, "num_classes": 10, "depth": 1, "cross_attn_depth": 1, "cross_attn_heads": 2,
    "cross_attn_dim_head": 16,
             **{f"{part}_enc_{key}": value for part in ("sm", "lg") for key, value in
                {"depth": 1, "heads": 2, "mlp_dim": 64, "dim_head": 16}.items()},
             "sm_dim": 32, "sm_patch_size": 8, "lg_dim": 48, "lg_patch_size": 16}  # fmt: skip
MOBILE = {"image_size": (64, 64), "dims": [16, 24, 32], "channels": [8, 16, 16, 16, 16, 16, 24, 24, 32, 32, 64],
          "num_classes": 10, "depths": (1, 1, 1)}  # fmt: skip


def load(module: str, name: str) -> Any:
    """``vit_pytorch.<module>.<name>``; what a module asks for beyond its models is stood in for."""
    if module == "vaat":  # torchaudio is only for raw audio; the cases feed spectrograms
        transforms = types.ModuleType("torchaudio.transforms")
        transforms.Spectrogram = nn.Identity  # type: ignore[attr-defined]
        audio = types.ModuleType("torchaudio")
        audio.transforms = transforms  # type: ignore[attr-defined]
        sys.modules.setdefault("torchaudio", audio)
        sys.modules.setdefault("torchaudio.transforms", transforms)
    found = importlib.import_module(f"vit_pytorch.{module}")
    if module == "ats_vit":  # Gumbel noise is drawn in eval mode too: without it eager agrees with itself
        found.sample_gumbel = lambda shape, device, dtype, eps=1e-6: torch.zeros(shape, device=device, dtype=dtype)
    return getattr(found, name)


def without(option: str) -> dict[str, Any]:
    return {key: value for key, value in PATCH.items() if key != option}


class Call(nn.Module):
    """``model(*inputs, **fixed)``: keyword options become part of the model, so that every input is a tensor."""

    def __init__(self, model: nn.Module, **fixed: Any) -> None:
        super().__init__()
        self.model, self.fixed = model, fixed

    def forward(self, x: torch.Tensor) -> Any:
        return self.model(x, **self.fixed)


def add(name: str, build: Callable[[], nn.Module], shape: Callable[..., Case] = image, **options: Any) -> None:
    CASES[name] = lambda: shape(build(), **options)


# (case, module, class, keyword arguments)
IMAGE_MODELS: list[tuple[str, str, str, dict[str, Any]]] = [
    ("vit", "vit", "ViT", VIT),
    ("vit_meanpool", "vit", "ViT", {**VIT, "pool": "mean"}),
    ("simple_vit", "simple_vit", "SimpleViT", VIT),
    ("simple_flash_attn_vit_flash", "simple_flash_attn_vit", "SimpleViT", {**VIT, "use_flash": True}),
    ("simple_uvit", "simple_uvit", "SimpleUViT", VIT),
    ("simple_vit_attn_residual", "simple_vit_attn_residual", "SimpleViTAttnResidual", VIT),
    ("attn_residual_dca", "attn_residual_with_dca_simple_vit", "SimpleViT", VIT),
    ("attn_residual_dca_perhead", "attn_residual_with_dca_simple_vit", "SimpleViT", {**VIT, "per_head": True,
        "ffn_heads": 2}),
    ("simple_vit_orthog", "simple_vit_orthog_residual_update", "SimpleViT", VIT),
    ("simple_vit_fft", "simple_vit_with_fft", "SimpleViT", {**VIT, "freq_patch_size": 8}),
    ("simple_vit_hyper", "simple_vit_with_hyper_connections", "SimpleViT", {**VIT, "num_residual_streams": 2}),
    ("simple_vit_patch_dropout", "simple_vit_with_patch_dropout", "SimpleViT", VIT),
    ("simple_vit_qk_norm", "simple_vit_with_qk_norm", "SimpleViT", VIT),
    ("simple_vit_registers", "simple_vit_with_register_tokens", "SimpleViT", VIT),
    ("simple_vit_relproj", "simple_vit_with_relative_proj_pos_bias", "SimpleViT", VIT),
    ("simple_vit_sparse_gating", "simple_vit_with_sparse_gating", "SimpleViTWithSparseGating", VIT),
    ("simple_vit_specialized_cls", "simple_vit_with_specialized_cls", "SimpleViT", VIT),
    ("simple_vit_value_residual", "simple_vit_with_value_residual", "SimpleViT", VIT),
    ("deepvit", "deepvit", "DeepViT", VIT),
    ("cait", "cait", "CaiT", {**VIT, "cls_depth": 1}),
    ("jumbo_vit", "jumbo_vit", "JumboViT", {**VIT, "jumbo_cls_k": 2}),
    ("parallel_vit", "parallel_vit", "ViT", VIT),
    ("nvit", "normalized_vit", "nViT", VIT),
    ("rvt", "rvt", "RvT", VIT),
    ("rvt_norotary", "rvt", "RvT", {**VIT, "use_rotary": False}),
    ("xcit", "xcit", "XCiT", {**VIT, "cls_depth": 1}),
    ("vit_5", "vit_5", "ViT", VIT),
    ("vit_small_dataset", "vit_for_small_dataset", "ViT", VIT),
    ("vit_decorr", "vit_with_decorr", "ViT", VIT),
    ("vit_keel", "vit_with_keel_post_ln", "ViT", VIT),
    ("vit_patch_dropout", "vit_with_patch_dropout", "ViT", VIT),
    ("vit_patch_merger", "vit_with_patch_merger", "ViT", {**VIT, "patch_merge_layer": 1, "patch_merge_num_tokens": 4}),
    ("learnable_memory_vit", "learnable_memory_vit", "ViT", VIT),
    ("mp3_vit", "mp3", "ViT", VIT),
    ("vat_vit", "vat", "ViT", VIT),
    ("vaat_vit", "vaat", "ViT", VIT),
    ("vat_vit_registers", "vat", "ViT", {**VIT, "num_register_tokens": 2}),
    ("pit", "pit", "PiT", {**VIT, "depth": (1, 1)}),
    ("jet_vit", "jet_vit", "JetViT", {**VIT, "window_size": 2}),
    ("looped_vit", "looped_vit", "LoopedViT", LOOPED),
    ("wwt", "wwt", "WWT", {**VIT, "num_slots": (8, 4)}),
    ("ats_vit", "ats_vit", "ViT", {**VIT, "max_tokens_per_depth": (8, 4)}),
    ("cct", "cct", "CCT", {**CCT, "positional_embedding": "sine"}),
    ("cct_learnable", "cct", "CCT", {**CCT, "positional_embedding": "learnable"}),
    ("cross_vit", "cross_vit", "CrossViT", CROSS_VIT),
    ("look_vit", "look_vit", "LookViT", {**without("mlp_dim"), "depth": 1, "highres_patch_size": 4,
        "cross_attn_heads": 2, "cross_attn_dim_head": 16}),
    ("t2t", "t2t", "T2TViT", {**without("patch_size"), "depth": 1, "t2t_layers": ((7, 4), (3, 2))}),
    ("vit_nd_2d", "vit_nd", "ViTND", ND2),
    ("vit_nd_pope", "vit_nd_pope", "ViTND", ND2),
    ("vit_nd_rotary", "vit_nd_rotary", "ViTND", ND2),
    ("vit_detpool", "vit_detpool", "ViTDetPool", VIT),
    ("siglip", "vat_siglip", "SigLIP", {"image_size": 32, "patch_size": 8, "dim": 32, "depth": 2, "heads": 2,
        "mlp_dim": 64}),
]  # fmt: skip
for _name, _module, _class, _options in IMAGE_MODELS:
    add(_name, lambda m=_module, c=_class, o=_options: load(m, c)(**o))

# (case, module, class, keyword arguments, native size, other sizes)
SIZED_MODELS: list[tuple[str, str, str, dict[str, Any], tuple[int, int], tuple[tuple[int, int], ...]]] = [
    ("crossformer", "crossformer", "CrossFormer", {"num_classes": 10, "dim": (32, 32, 64, 64), "depth": (1, 1, 1, 1),
     "global_window_size": (4, 2, 2, 1), "local_window_size": 2}, (64, 64), (*DOUBLES, (32, 64))),
    ("cvt", "cvt", "CvT", CVT, (64, 64), ((64, 96), (48, 80), (72, 56), (128, 64))),
    ("levit", "levit", "LeViT", LEVIT, (64, 64), LEVIT_SIDES),
    ("levit_distill", "levit", "LeViT", {**LEVIT, "num_distill_classes": 10}, (64, 64), LEVIT_SIDES),
    ("max_vit", "max_vit", "MaxViT", MAXVIT, (64, 64), SIDES),
    ("max_vit_registers", "max_vit_with_registers", "MaxViT", MAXVIT, (64, 64), SIDES),
    ("mobile_vit", "mobile_vit", "MobileViT", MOBILE, (64, 64), ((64, 128), (128, 64), (128, 192), (128, 128))),
    ("nest", "nest", "NesT", {**without("mlp_dim"), "patch_size": 4, "num_hierarchies": 2, "block_repeats": (1, 1),
        "mlp_mult": 2}, (32, 32),
     ((32, 48), (48, 32), (16, 32), (64, 64))),
    ("regionvit", "regionvit", "RegionViT", REGION, (64, 64), DOUBLES),
    ("regionvit_peg", "regionvit", "RegionViT", {**REGION, "use_peg": True, "tokenize_local_3_conv": True}, (64,
        64), DOUBLES),
    ("scalable_vit", "scalable_vit", "ScalableViT", {"num_classes": 10, "dim": 16, "heads": (1, 2), "depth": (1, 1),
     "ssa_dim_key": (16, 16), "reduction_factor": (2, 1), "window_size": (4, None)}, (64, 64), SIDES),
    ("sep_vit", "sep_vit", "SepViT", {"num_classes": 10, "dim": 16, "dim_head": 16, "heads": (1, 2), "depth": (1,
        1)}, (56, 56),
     ((56, 112), (112, 56), (112, 112))),
    ("twins_svt", "twins_svt", "TwinsSVT", TWINS, (32, 32), ((32, 64), (64, 32), (64, 64))),
]  # fmt: skip
for _name, _module, _class, _options, _native, _others in SIZED_MODELS:
    add(_name, lambda m=_module, c=_class, o=_options: load(m, c)(**o), native=_native, others=_others)

VIDEO_MODELS: list[tuple[str, str, str, dict[str, Any]]] = [
    ("cct_3d", "cct_3d", "CCT", {**CCT, "num_frames": 4, "frame_kernel_size": 3, "pooling_kernel_size": 3,
        "pooling_stride": 2,
     "pooling_padding": 1, "positional_embedding": "learnable"}),
    ("vit_3d", "vit_3d", "ViT", {**VIDEO, "depth": 2}),
    ("simple_vit_3d", "simple_vit_3d", "SimpleViT", {**VIDEO, "depth": 2}),
    ("simple_flash_attn_vit_3d_flash", "simple_flash_attn_vit_3d", "SimpleViT", {**VIDEO, "depth": 2,
        "use_flash_attn": True}),
    ("vivit", "vivit", "ViViT", VIVIT),
    ("vivit_factorized_sa", "vivit", "ViViT", {**VIVIT, "variant": "factorized_self_attention",
        "use_flash_attn": False}),
    ("vivit_moss", "vivit_with_moss", "ViViT", VIVIT),
    ("levjepa_nd_transformer", "levjepa_nd", "NDTransformer", {"ndim": 3, "input_shape": (4, 32, 32),
        "patch_size": (2, 8, 8),
     "dim": 48, "depth": 1, "heads": 2, "mlp_dim": 64, "dim_head": 24}),
    ("vit_nd_3d", "vit_nd", "ViTND", ND3),
    ("vit_nd_causal", "vit_nd", "ViTND", {**ND3, "causal_dims": 0}),
    ("vit_nd_rotary_3d", "vit_nd_rotary", "ViTND", ND3),
]  # fmt: skip
for _name, _module, _class, _options in VIDEO_MODELS:
    add(_name, lambda m=_module, c=_class, o=_options: load(m, c)(**o), video)


def sequence(model: nn.Module) -> Case:
    make = lambda n, size: (torch.randn(n, 3, *size),)  # noqa: E731
    return at_sizes(randomise(model), make, (32,), ((16,), (24,), (48,)), ("length",))


for _module, _class in (("vit_1d", "ViT"), ("simple_vit_1d", "SimpleViT")):
    _options = {
        "seq_len": 32,
        "patch_size": 4,
        "num_classes": 10,
        "dim": 32,
        "depth": 2,
        "heads": 2,
        "mlp_dim": 64,
        "dim_head": 16,
    }
    add(_module, lambda m=_module, c=_class, o=_options: load(m, c)(**o), sequence)


# ---- wrappers, options of forward, several inputs
def plain_vit() -> nn.Module:
    return load("vit", "ViT")(**VIT)


def efficient() -> nn.Module:
    transformer = load("vit", "Transformer")(32, 2, 2, 16, 64, 0.0)
    return load("efficient", "ViT")(image_size=32, patch_size=8, num_classes=10, dim=32, transformer=transformer)


def memory_adapter() -> nn.Module:
    vit = load("learnable_memory_vit", "ViT")(**VIT)
    return load("learnable_memory_vit", "Adapter")(vit=vit, num_memories_per_layer=3, num_classes=4)


def adaptive_loop() -> nn.Module:
    return Call(
        load("looped_vit", "LoopedViT")(**LOOPED, adaptive_loop=True), return_all_logits=True, return_exit_benefits=True
    )


def residual_history() -> nn.Module:
    return Call(load("simple_vit_attn_residual", "SimpleViTAttnResidual")(**VIT), return_history=True)


def sampled_ids() -> nn.Module:
    return Call(load("ats_vit", "ViT")(**VIT, max_tokens_per_depth=(8, 4)), return_sampled_token_ids=True)


def distillable() -> nn.Module:
    wrapped = Call(load("distill", "DistillableViT")(**VIT))
    wrapped.distill_token = nn.Parameter(torch.randn(1, 32))
    wrapped.fixed["distill_token"] = wrapped.distill_token
    return wrapped


add("efficient", efficient)
add("learnable_memory_adapter", memory_adapter)
add("looped_vit_adaptive", adaptive_loop)
add("simple_vit_attn_residual_history", residual_history)
add("ats_vit_ids", sampled_ids)
add("distillable_vit", distillable)
add("extractor", lambda: load("extractor", "Extractor")(plain_vit()))
add("extractor_embeddings", lambda: load("extractor", "Extractor")(plain_vit(), return_embeddings_only=True))
add("recorder", lambda: load("recorder", "Recorder")(plain_vit()))
add(
    "mobile_vit",
    lambda: load("mobile_vit", "MobileViT")(**MOBILE),
    native=(64, 64),
    others=((64, 128), (128, 64), (128, 192)),
)


def accept_video(**extra: Any) -> nn.Module:
    inner = load("extractor", "Extractor")(plain_vit()) if extra else plain_vit()
    return load("accept_video_wrapper", "AcceptVideoWrapper")(inner, **extra)


TIMED = {
    "add_time_pos_emb": True,
    "output_pos_add_pos_emb": 1,
    "time_seq_len": 6,
    "dim_emb": 32,
    "proj_embed_to_dim": 24,
}
MOSS = {"dim": 24, "local_time": 3, "local_height": 3, "local_width": 3, "hidden_dim": 8, "orders": 2, "causal": True}
FRAMES = ((2, 32, 32), (6, 32, 32))
add("accept_video_wrapper", accept_video, video, others=(*FRAMES, (4, 16, 32)))
add("accept_video_wrapper_emb", lambda: accept_video(**TIMED), video, others=FRAMES)
add("accept_video_wrapper_moss", lambda: accept_video(**TIMED, moss=MOSS), video, others=FRAMES)


def moss() -> Case:
    model = randomise(load("vivit_with_moss", "MOSS")(16, hidden_dim=8))
    make = lambda n, size: (torch.randn(n, *size, 16),)  # noqa: E731
    return Case(model, [make(2, (4, 4, 5)), make(3, (4, 4, 5)), make(2, (4, 6, 4)), make(1, (3, 4, 5))],
                ({0: "batch", 1: "frames", 2: "height", 3: "width"},))  # fmt: skip


def masked_video() -> Case:
    model = randomise(load("vivit", "ViViT")(**VIVIT, use_flash_attn=False))
    mask = torch.tensor([[True] * 4, [True, True, True, False], [True] * 4])
    make = lambda n: (torch.randn(n, 3, 4, 32, 32), mask[:n])  # noqa: E731
    return Case(model, [make(2), make(3), make(1)], ({0: "batch"}, {0: "batch"}))


def detection_mask() -> Case:
    model = randomise(load("vit_detpool", "ViTDetPool")(**VIT))
    make = lambda n: (torch.randn(n, 3, 32, 32), torch.rand(n, 32, 32) > 0.3)  # noqa: E731
    return Case(model, [make(2), make(3), make(1)], ({0: "batch"}, {0: "batch"}))


class Action(nn.Module):
    """A vision-action model with its optional inputs given by position."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, video: torch.Tensor, tasks: torch.Tensor, extra: torch.Tensor) -> Any:
        return self.model(video, tasks=tasks, extra=extra)


class ActionWithSound(Action):
    def forward(self, video: torch.Tensor, sound: torch.Tensor, tasks: torch.Tensor, extra: torch.Tensor) -> Any:  # type: ignore[override]
        return self.model(video, sound, tasks=tasks, extra=extra)


def action_case(model: nn.Module, sound: bool = False) -> Case:
    def make(n: int) -> tuple[torch.Tensor, ...]:
        spectrogram = (torch.randn(n, 2, 32, 40),) if sound else ()
        return (torch.randn(n, 2, 3, 2, 32, 32), *spectrogram, torch.randint(0, 4, (n,)), torch.randn(n, 7))

    return Case(randomise(model), [make(2), make(3), make(1)], ({0: "batch"},) * len(make(1)))


def vat() -> Case:
    return action_case(Action(load("vat", "VAT")(load("vat", "ViT")(**VIT), **ACTION, num_views=2)))


def vat_siglip() -> Case:
    sizes = {"image_size": 32, "patch_size": 8, "dim": 32, "depth": 2, "heads": 2, "mlp_dim": 64}
    return action_case(
        Action(load("vat_siglip", "SigLIPVAT")(**ACTION, num_views=2, **{f"siglip_{k}": v for k, v in sizes.items()}))
    )


def vaat() -> Case:
    eyes, ears = load("vaat", "ViT")(**VIT), load("vaat", "AST")(**AST, depth=2)
    return action_case(
        ActionWithSound(load("vaat", "VAAT")(eyes, ears, **ACTION, num_image_views=2, num_audio_views=1)), sound=True
    )


def spectrogram() -> Case:
    make = lambda n, size: (torch.randn(n, *size),)  # noqa: E731
    return at_sizes(
        randomise(load("vaat", "AST")(**AST, depth=1)), make, (32, 40), ((32, 64), (24, 40)), ("bins", "time")
    )


def packed(module: str, options: dict[str, Any], sizes: list[list[tuple[int, ...]]]) -> Case:
    """Images of different sizes in a list: the models that pack them into one sequence."""
    make = lambda shapes: ([torch.randn(3, *shape) for shape in shapes],)  # noqa: E731
    last = len(sizes[0][0])
    shapes = [{last - 1: f"height{i}", last: f"width{i}"} for i in range(len(sizes[0]))]
    return Case(randomise(load(module, "NaViT")(**options)), [make(s) for s in sizes], (shapes,))


PACKED = [[(32, 32), (16, 24)], [(16, 32), (32, 24)], [(24, 24), (24, 16)]]
CLIP = {**PATCH, "max_frames": 4, "frame_patch_size": 2, "depth": 1}
CASES |= {
    "moss": moss,
    "vivit_mask": masked_video,
    "vit_detpool_mask": detection_mask,
    "vat": vat,
    "vat_siglip": vat_siglip,
    "vaat": vaat,
    "ast_spec": spectrogram,
    "na_vit": lambda: packed("na_vit", VIT, PACKED),
    "na_vit_nested": lambda: packed("na_vit_nested_tensor", VIT, PACKED[:2]),
    "na_vit_nested_3d": lambda: packed("na_vit_nested_tensor_3d", CLIP, [[(4, *a), (2, *b)] for a, b in PACKED[:2]]),
}

LEFT_OUT = {
    "dino, es_vit, lejepa, levjepa, levjepa_nd (trainers)": "training wrappers: random augmentation and a loss",
    "mae, simmim, mpp, mp3 (trainers)": "training wrappers: the mask is drawn at random",
    "distill.DistillWrapper": "training wrapper; the students are cases",
    "simple_flash_attn_vit and _3d with flash attention off": "eager fails: einsum is not imported there",
    "local_vit.LocalViT": "eager fails: LayerNorm over the wrong axis",
    "levjepa.VideoTransformer": "eager fails: the signature of its flex_attention mask",
    "distill.DistillableT2TViT, DistillableEfficientViT": "eager fails: the class token has three axes, not two",
    "vaat.AST on raw audio": "needs torchaudio",
}
