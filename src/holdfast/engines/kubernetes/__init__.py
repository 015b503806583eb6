"""The engine `kubernetes`: pods are nodes."""
