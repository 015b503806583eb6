"""The loop: inbox to core to journal to engine."""
