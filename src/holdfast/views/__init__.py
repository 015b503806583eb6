"""Formats everything that users see, from documents: terminal reports, screens, charts and pages.

Prints nothing itself.
"""
