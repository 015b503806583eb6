"""Documents: what the page, the API, messages and commands show of jobs. Plain structs, the same for every reader."""
