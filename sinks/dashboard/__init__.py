"""The dashboard: pages for a browser, from the live streams and from the history."""
