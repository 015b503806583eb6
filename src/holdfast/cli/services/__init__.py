"""Implements the commands of services beside jobs: server, notifications, alert rules, MCP."""
