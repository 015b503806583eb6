"""The training that `holdfast demo` runs. A script of its own: nothing here is imported by Holdfast."""
