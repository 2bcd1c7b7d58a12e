"""Make PyTorch models export to ONNX right, at every size and on every branch, without editing their source."""
