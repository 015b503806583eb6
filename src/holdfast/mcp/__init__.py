"""Answers questions of software agents about jobs, over the Model Context Protocol. Only reads."""
