"""Background maintenance of a database: expiry, verification, re-encryption and clock checks."""
