"""Orders to the world, one engine each."""
