"""Carries out what people ask for: stops, restarts, isolation, commands, shells, judgements. Each one is audited."""
