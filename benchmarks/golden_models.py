"""The whole models of the golden record, by family and case: several of each kind, small ones, of libraries that
`make test` installs."""

from __future__ import annotations

_CASES = {
    "audio": "wav2vec2 sew_d whisper encodec hifigan",
    "branches_on_sizes": "pad_and_crop unet_other",
    "diffusion": "unet_2d_condition flux autoencoder_kl",
    "encoder_decoders": "t5 bart longt5_local led t5_cached",
    "loops_over_sizes": "linear_recurrence cells",
    "multimodal": "clip siglip clipseg llava layoutlmv3",
    "numbers_of_sizes": "windows split_in_halves",
    "sizes_in_data": "lengths_as_list lstm_packed",
    "tables_on_self": "table_grown buffer_grown",
    "text_decoders": "gpt2 bloom llama mistral_sliding mixtral gemma3 deepseek_v3 mamba",
    "text_decoders_cached": "llama gpt2_step gemma3_window",
    "text_encoders": "bert deberta_v2 mpnet big_bird_sparse modernbert",
    "time_series": "informer patchtst",
    "timm": "vit swin convnext vit_relpos",
    "torchvision": "swin resnet18",
    "transformers_vision": "vit dinov2 segformer swin detr",
    "vit_pytorch": "vit simple_vit nest",
}
MODELS = tuple(f"{family}/{case}" for family, cases in _CASES.items() for case in cases.split())
