"""Finds slowdowns, phases and loss spikes in a training's step times and losses. Pure."""
