"""Migrates the tables of an older index in numbered steps (Alembic)."""
