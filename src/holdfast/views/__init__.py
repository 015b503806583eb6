"""What people see: terminal reports, screens, charts and pages. Made from documents; prints nothing."""
