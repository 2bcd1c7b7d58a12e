"""What a model is called with: named leaves, dynamic shapes, and the dimensions that may change."""
