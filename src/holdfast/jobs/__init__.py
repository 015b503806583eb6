"""Finds and opens jobs from outside: their location, their record, and the connection to a running one."""
