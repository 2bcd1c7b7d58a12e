"""The patches that come with onnxpatch, one file per library or concern; found by a walk, no index to keep."""
