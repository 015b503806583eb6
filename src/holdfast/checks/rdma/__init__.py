"""Checks RDMA network ports: InfiniBand and RoCE."""
