"""A language model of the Llama kind with its cache: tokens and past keys and values in, logits and new ones out."""

import sys

import torch
import transformers

import onnxpatch


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=500, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval()


if __name__ == "__main__":
    for report in onnxpatch.export_generation(model(), sys.argv[1]).values():
        print(report)
