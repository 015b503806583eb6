"""Steps as a report, charts, pages and pictures."""
