"""The API: one table of routes, what each of them asks and answers, and who answers it."""
