"""Known failures as data: TOML files of signatures, and tables of codes. No code."""
