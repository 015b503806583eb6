"""Runs a job on Kubernetes: submits and follows it from outside, and supervises it in its controller's pod."""
