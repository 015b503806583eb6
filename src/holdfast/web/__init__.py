"""Serves jobs as documents over HTTP, and the page that shows them. Reads the state folder; acts only when asked."""
