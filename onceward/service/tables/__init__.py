"""Tables as an application uses them: transactions, live views, connections, and requests."""
