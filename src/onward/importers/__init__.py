"""Native session formats, read: what other tools wrote, as events of the log."""
