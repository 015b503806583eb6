"""What the time of a job went to, and what other settings would have cost. Pure."""
