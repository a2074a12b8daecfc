"""Checking that a wheel is what its label says."""
