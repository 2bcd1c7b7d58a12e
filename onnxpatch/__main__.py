"""`python -m onnxpatch` is the command `onnxpatch`."""

from onnxpatch.cli import main

if __name__ == "__main__":
    main()
