"""Settings: the table of all of them, their sources, and times as people write them."""
