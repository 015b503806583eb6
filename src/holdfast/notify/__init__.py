"""Tells people: reads the record of a job as it grows, and delivers notices to the channels that the rules name."""
