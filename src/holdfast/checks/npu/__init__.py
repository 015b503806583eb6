"""Checks Huawei Ascend NPUs."""
