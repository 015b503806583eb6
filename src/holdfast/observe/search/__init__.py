"""Searches logs for signatures: automaton, sweep, stores of signatures, codes and phrases."""
