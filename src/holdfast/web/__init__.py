"""Serves jobs as documents over HTTP, and the web page that shows them."""
