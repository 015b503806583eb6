"""How often nodes fail, how sure that is, and what to set: checkpoint interval, spares. Pure."""
