"""What differs from one engine to the next, behind one Protocol."""
