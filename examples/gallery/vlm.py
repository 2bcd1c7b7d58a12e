"""A model of the Qwen2-VL kind: three files, and a loop over them that reads two images of different sizes."""

import sys

import torch
import transformers

import onnxpatch

IMAGE, START, END = 98, 96, 95  # tokens of its vocabulary: a part of an image, and what stands around an image


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    text = dict(
        vocab_size=99, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        rope_parameters={"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 1e4},
    )  # fmt: skip
    eyes = dict(depth=1, embed_dim=16, hidden_size=32, mlp_ratio=2, num_heads=2, patch_size=4)
    config = transformers.Qwen2VLConfig(
        text_config=text, vision_config=eyes, image_token_id=IMAGE, video_token_id=97, vision_start_token_id=START,
        vision_end_token_id=END,
    )  # fmt: skip
    return transformers.Qwen2VLForConditionalGeneration(config).eval()


def prompt(*grids: tuple[int, int]) -> dict[str, torch.Tensor]:
    """A text with images of so many rows and columns of patches, as the model's processor gives it."""
    torch.manual_seed(1)
    words = [3, 4]
    for rows, columns in grids:
        words += [START, *[IMAGE] * (rows * columns // 4), END, 5]  # four patches become one token
    return {
        "input_ids": torch.tensor([words]),
        "pixel_values": torch.randn(sum(rows * columns for rows, columns in grids), 3 * 2 * 4 * 4),
        "image_grid_thw": torch.tensor([(1, *grid) for grid in grids]),
    }


if __name__ == "__main__":
    made, folder = model(), sys.argv[1]
    for report in onnxpatch.export_generation(made, folder, exporter="trace").values():
        print(report)
    session = onnxpatch.GenerationSession(folder)
    for given in (prompt((4, 4)), prompt((6, 4), (4, 10))):
        how = {"do_sample": False, "max_new_tokens": 32, "eos_token_id": None, "suppress_tokens": [IMAGE, 97]}
        types = (given["input_ids"] == IMAGE).int()  # which tokens are an image's: for eager alone
        wanted = made.generate(**given, mm_token_type_ids=types, **how)
        if not torch.equal(session.generate(**given, **how), wanted):
            sys.exit("other tokens than eager's")
        print(f"images of {given['image_grid_thw'][:, 1:].tolist()} patches: the 32 tokens are eager's")
