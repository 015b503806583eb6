"""Finds the commit, node or setting that makes a training fail, by choosing which test run comes next. Pure."""
