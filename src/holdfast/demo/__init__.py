"""Contains the training script that `holdfast demo` runs. Holdfast does not import it."""
