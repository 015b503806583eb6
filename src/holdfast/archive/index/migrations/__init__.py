"""Changes the tables of an older index, one numbered step after the other (Alembic)."""
