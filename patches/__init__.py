"""The patches that come with onnxpatch, in a folder for each library or concern. They are found by walking it."""
