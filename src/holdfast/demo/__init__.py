"""The training that `holdfast demo` runs. A script of its own: Holdfast does not import it."""
