"""The patches that come with onnxpatch, in a folder for each library or concern; found by a walk, no index to keep."""
