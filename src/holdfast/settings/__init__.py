"""The table of all settings, their sources, and notation of times."""
