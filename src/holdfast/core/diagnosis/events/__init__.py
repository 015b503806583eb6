"""Events of machines and pods, and nodes that return. Pure."""
