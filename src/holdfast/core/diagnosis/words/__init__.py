"""Texts of a diagnosis: meanings of categories and messages, quotations, remarks, Chinese. Pure."""
