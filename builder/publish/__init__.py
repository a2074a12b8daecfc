"""From wheels to an index that pip and uv install from."""
