"""What is true: the state and the rules of each part. Every function takes a transaction."""
