"""Implements the engine `kubernetes`, whose nodes are pods."""
