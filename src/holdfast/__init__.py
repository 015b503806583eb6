"""Holdfast keeps a distributed training run going and says why it stopped."""

__version__ = "0.1.0"
