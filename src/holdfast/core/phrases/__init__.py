"""Finds what words and codes mean that somebody pastes: loose search in the phrases of the knowledge. Pure."""
