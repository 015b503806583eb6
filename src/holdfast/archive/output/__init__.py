"""Reads pages of a job's output from files of any size, by place, time, rank and pattern."""
