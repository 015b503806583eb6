"""What a training's step times and losses tell: slowdowns, phases, spikes, and where it is. Pure."""
