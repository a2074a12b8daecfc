"""What proof scripts share. Runs where torch and triton are, without the builder installed."""
