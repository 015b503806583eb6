"""Everything that people see: terminal reports, screens, charts and pages, made from documents. Prints nothing."""
