"""Serves facts about jobs to software agents over the Model Context Protocol. Read-only."""
