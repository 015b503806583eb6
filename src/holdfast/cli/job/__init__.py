"""Commands on a job that runs or has run: status, logs, stacks, commands on its workers."""
