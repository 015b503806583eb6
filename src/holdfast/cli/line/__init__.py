"""The command line itself: flags, completion, languages, output."""
