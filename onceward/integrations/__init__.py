"""Integrations with web frameworks: each module needs its framework, and the public API only."""
