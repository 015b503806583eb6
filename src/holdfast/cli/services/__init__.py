"""Commands of services beside the jobs: server, messages, alert rules, software agents."""
