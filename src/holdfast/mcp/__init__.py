"""Serves facts about jobs to AI agents over the Model Context Protocol (MCP). Only reads."""
