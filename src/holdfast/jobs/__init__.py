"""Jobs as seen from outside: where they lie, their record, and the line to a running one."""
