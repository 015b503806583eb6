"""The append-only record of a job."""
