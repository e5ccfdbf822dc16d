"""What operators see: counts, samples, senders, search and pages of lists."""
