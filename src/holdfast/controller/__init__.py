"""The controller's loop: inbox, core, journal, engine."""
