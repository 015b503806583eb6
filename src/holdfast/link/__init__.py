"""The connection between agents and a job's controller: one stream of entries up, orders down. Transports bytes
only.
"""
