"""einops patterns: parsed once into a plan of ints, which runs as torch calls or is written as ONNX nodes.

May import `formulas.nodes`, `_torch`, `errors`. Start reading at `axes.AxisPlan`, then `rearrange`.
"""
