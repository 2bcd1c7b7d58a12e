"""einops patterns: each becomes a plan of integers once, and the plan torch calls or ONNX nodes."""
