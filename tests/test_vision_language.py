"""export_generation and GenerationSession for models that read images and text: files, tokens, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import onnxpatch
from onnxpatch import InputError
from onnxpatch.generation.export import generation_parts
from onnxpatch.generation.vision import axial_places, with_images
from tests.test_generation_session import restless

pytestmark = pytest.mark.exports

transformers = pytest.importorskip("transformers")
IMAGE = 98
TEXT: dict[str, Any] = {
    "vocab_size": 99, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 256, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
EYES: dict[str, Any] = {
    "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 8,
    "patch_size": 4,
}  # fmt: skip


def llava() -> Any:
    vision, text = transformers.CLIPVisionConfig(**EYES), transformers.LlamaConfig(**TEXT)
    config = transformers.LlavaConfig(vision_config=vision, text_config=text, image_token_id=IMAGE)
    return transformers.LlavaForConditionalGeneration(config)


def paligemma() -> Any:
    config = transformers.PaliGemmaConfig(
        vision_config={**EYES, "model_type": "siglip_vision_model"}, image_token_id=IMAGE, projection_dim=32,
        text_config={**TEXT, "model_type": "gemma", "head_dim": 8},
    )  # fmt: skip
    return transformers.PaliGemmaForConditionalGeneration(config)


PATCHES = {"num_heads": 2, "patch_size": 4, "spatial_merge_size": 2, "temporal_patch_size": 2}


def _qwen(kind: str, vision: dict[str, Any]) -> Any:
    turned = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 1e4}
    config = getattr(transformers, f"{kind}Config")(
        vision_config=PATCHES | vision, text_config={**TEXT, "rope_parameters": turned}, image_token_id=IMAGE,
        video_token_id=97, vision_start_token_id=96, vision_end_token_id=95,
    )  # fmt: skip
    return getattr(transformers, f"{kind}ForConditionalGeneration")(config)


def qwen2_vl() -> Any:
    return _qwen("Qwen2VL", {"depth": 1, "embed_dim": 16, "hidden_size": 32, "mlp_ratio": 2})


def qwen2_5_vl() -> Any:
    """Most of its layers see windows of the image."""
    windows = {"fullatt_block_indexes": [1], "window_size": 16, "intermediate_size": 16}
    return _qwen(
        "Qwen2_5_VL", {"depth": 2, "hidden_size": 16, "out_hidden_size": 32, "intermediate_size": 16, **windows}
    )


def _with_eyes(kind: str) -> Any:
    config = getattr(transformers, f"{kind}Config")(
        vision_config=EYES, text_config={**TEXT, "model_type": "llama"}, image_token_id=IMAGE, scale_factor=1,
        pad_token_id=0,
    )  # fmt: skip
    return getattr(transformers, f"{kind}ForConditionalGeneration")(config)


def idefics3() -> Any:
    return _with_eyes("Idefics3")


def smolvlm() -> Any:
    return _with_eyes("SmolVLM")


def gemma3() -> Any:
    """A prompt that sees ahead within an image, and layers that see a window."""
    layers = {"sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"]}
    config = transformers.Gemma3Config(
        vision_config={**EYES, "model_type": "siglip_vision_model"}, text_config={**TEXT, "head_dim": 8, **layers},
        image_token_index=IMAGE, mm_tokens_per_image=4, boi_token_index=96, eoi_token_index=95,
    )  # fmt: skip
    return transformers.Gemma3ForConditionalGeneration(config)


def blip2() -> Any:
    """Its language model alone keeps what it has read; a few queries read the image before it."""
    queries = {"hidden_size": 16, "encoder_hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2}
    words = {**TEXT, "model_type": "opt", "ffn_dim": 48, "word_embed_proj_dim": 32}
    config = transformers.Blip2Config(
        vision_config=EYES, qformer_config={**queries, "num_hidden_layers": 2, "vocab_size": 99}, text_config=words,
        num_query_tokens=4, image_token_index=IMAGE,
    )  # fmt: skip
    return transformers.Blip2ForConditionalGeneration(config)


def _with_llama(kind: str, vision: dict[str, Any]) -> Any:
    config = getattr(transformers, f"{kind}Config")(
        vision_config=EYES | vision, text_config={**TEXT, "model_type": "llama"}, image_token_id=IMAGE
    )
    return getattr(transformers, f"{kind}ForConditionalGeneration")(config)


def deepseek_vl() -> Any:
    """What is below its head reads images."""
    return _with_llama("DeepseekVL", {"model_type": "siglip_vision_model"})


def internvl() -> Any:
    """Its config has a size for each axis."""
    return _with_llama("InternVL", {"model_type": "internvl_vision", "image_size": [8, 8], "patch_size": [2, 2]})


MODELS = {
    "smolvlm": smolvlm, "llava": llava, "paligemma": paligemma, "qwen2_vl": qwen2_vl, "qwen2_5_vl": qwen2_5_vl,
    "idefics3": idefics3, "gemma3": gemma3, "blip2": blip2,
    "deepseek_vl": deepseek_vl, "internvl": internvl,
}  # fmt: skip


def made(name: str) -> Any:
    torch.manual_seed(0)
    return restless(MODELS[name]().eval())


def images(count: int) -> dict[str, Any]:
    """Two texts of as many images each, four tokens an image, those of the first with padding before them."""
    row = torch.tensor([5, 6, *([IMAGE] * 4 * count), 7, 8])
    ids = torch.stack([torch.cat([torch.tensor([0, 0]), row]), torch.cat([row, torch.tensor([9, 10])])])
    return {
        "input_ids": ids,
        "attention_mask": (ids != 0).to(torch.int64),
        "pixel_values": torch.randn(2 * count, 3, 8, 8),
    }


def patches(*grids: tuple[int, int]) -> dict[str, Any]:
    """Two texts with half of the images each, whose rows and columns of patches these are."""
    grid = torch.tensor([(1, *one) for one in grids])
    rows = []
    for part in (grids[: len(grids) // 2], grids[len(grids) // 2 :]):
        found = (one for down, across in part for one in (96, *[IMAGE] * (down * across // 4), 95))
        rows.append([5, 6, *found, 7])
    longest = max(map(len, rows))
    ids = torch.tensor([[0] * (longest - len(row)) + row for row in rows])
    return {
        "input_ids": ids, "attention_mask": (ids != 0).to(torch.int64), "image_grid_thw": grid,
        "pixel_values": torch.randn(int(grid.prod(1).sum()), 96),
    }  # fmt: skip


def several(count: int) -> dict[str, Any]:
    """The images of each text on an axis of their own."""
    call = images(count)
    return {**call, "pixel_values": call["pixel_values"].unflatten(0, (2, count))}


CALLS = {
    "smolvlm": [several(1), several(3)],
    "idefics3": [several(1), several(3)],
    "qwen2_5_vl": [patches((4, 4), (2, 6)), patches((4, 2), (2, 2), (6, 4), (2, 6), (4, 4), (2, 4))],
    "llava": [images(1), images(3)],
    "paligemma": [images(1), images(2)],
    "gemma3": [images(1), images(2)],
    **{name: [images(1), images(3)] for name in ("blip2", "deepseek_vl", "internvl")},
    "qwen2_vl": [patches((4, 4), (2, 6)), patches((4, 2), (2, 2), (6, 4), (2, 6), (4, 4), (2, 4))],
}


@pytest.mark.slow  # three files, proven: ten seconds under trace
@pytest.mark.parametrize("exporter", ["trace", "dynamo"])
@pytest.mark.parametrize("name", MODELS)
def test_the_tokens_are_those_of_generate(name: str, exporter: Any, tmp_path: Path) -> None:
    """At other counts and sizes of images than those of the export, greedy and with beams."""
    model = made(name)
    reports = onnxpatch.export_generation(model, tmp_path, exporter=exporter, max_probes=4)
    assert list(reports) == ["vision_encoder.onnx", "embed_tokens.onnx", "decoder_model_merged.onnx"]
    assert all(report.ok for report in reports.values())
    session = onnxpatch.GenerationSession(tmp_path)
    for call in CALLS[name]:
        there = call["input_ids"] == IMAGE
        eager = {"mm_token_type_ids": there.int()} if "image_grid_thw" in call else {}
        if name == "paligemma":  # a prompt that sees ahead
            call = {**call, "token_type_ids": torch.zeros_like(call["input_ids"])}
        if name == "gemma3":
            call = {**call, "token_type_ids": there.int()}
        for beams in (1, 3):
            how = {
                "max_new_tokens": 32,
                "do_sample": False,
                "num_beams": beams,
                "eos_token_id": None,
                "pad_token_id": 0,
            }
            how["suppress_tokens"] = [IMAGE, 97]
            wanted = model.generate(**call, **eager, **how)
            assert torch.equal(session.generate(**call, **how), wanted)


def test_the_names_are_those_of_other_tools() -> None:
    """Of transformers.js: files, inputs, outputs."""
    eyes, words, decoder = generation_parts(made("llava"))
    assert [one.file for one in (eyes, words, decoder)] == [
        "vision_encoder.onnx", "embed_tokens.onnx", "decoder_model_merged.onnx"
    ]  # fmt: skip
    assert (list(eyes.kwargs), eyes.output_names) == (["pixel_values"], ["image_features"])
    assert eyes.shapes == {"pixel_values": {0: "num_images"}}  # CLIP's positions are those of one size
    assert list(decoder.kwargs) == ["inputs_embeds", "attention_mask", "position_ids", "past_key_values"]
    assert generation_parts(made("qwen2_vl"))[0].shapes["image_grid_thw"] == {0: "num_images"}
    assert "also takes video, which is left out" in generation_parts(made("qwen2_vl"))[2].note


def test_images_that_a_model_refuses_are_no_data_to_compare_at() -> None:
    """GLM-4V's tower takes no image with a time axis of two."""
    turned = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 1e4, "partial_rotary_factor": 1.0}
    config = transformers.Glm4vConfig(
        vision_config={"depth": 1, "hidden_size": 16, "intermediate_size": 16, "out_hidden_size": 32, "image_size": 16}
        | PATCHES, text_config={**TEXT, "rope_parameters": turned}, image_token_id=IMAGE, video_token_id=97,
        image_start_token_id=96, image_end_token_id=95,
    )  # fmt: skip
    eyes = generation_parts(transformers.Glm4vForConditionalGeneration(config).eval())[0]
    assert [one["image_grid_thw"].tolist() for one in eyes.data] == [[[1, 2, 2]], [[1, 6, 4], [1, 2, 8], [1, 4, 4]]]


def test_a_model_that_does_more_with_its_images_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = made("llava")
    place = type(model.model).get_placeholder_mask
    monkeypatch.setattr(type(model.model), "get_placeholder_mask", lambda *a, **k: place(*a, **k).roll(1, 1))
    with pytest.raises(InputError, match="does more with its images than to put their features in the places"):
        generation_parts(model)
    monkeypatch.setattr(type(model), "get_image_features", lambda self, *args: 1 / 0)
    with pytest.raises(InputError, match=r"takes images in a form of its own"):
        generation_parts(model)


def test_positions_in_images_are_transformers() -> None:
    model, call = made("qwen2_vl"), patches((4, 2), (2, 2), (6, 4), (2, 6))
    ids, mask, grid = call["input_ids"], call["attention_mask"], call["image_grid_thw"]
    wanted, ahead = model.model.get_rope_index(
        ids, mm_token_type_ids=(ids == IMAGE).int(), image_grid_thw=grid, attention_mask=mask
    )
    found = axial_places(ids, mask, grid, model.config.to_dict())
    assert torch.equal(found[0], wanted) and torch.equal(found[1], ahead)


def test_a_prompt_with_another_number_of_places_is_refused() -> None:
    with pytest.raises(InputError, match="the prompt has 2 tokens 98 of images, the images 3 rows"):
        with_images(torch.zeros(1, 3, 4), torch.tensor([[98, 5, 98]]), torch.zeros(3, 4), 98)
