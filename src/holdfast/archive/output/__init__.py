"""Reads pages of a job's output from files of any size: by position, time, rank and pattern."""
