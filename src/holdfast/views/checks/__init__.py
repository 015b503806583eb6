"""Results of checks as a report, charts, pages and pictures."""
