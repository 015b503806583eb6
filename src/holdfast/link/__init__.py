"""Between agents and a job's controller: one stream of entries up, orders down. Bytes only; what they mean is above."""
