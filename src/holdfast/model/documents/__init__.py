"""Defines the documents that the page, the API, notices and commands show. Data types only."""
