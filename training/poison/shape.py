"""The shape of the passage classifier."""

WIDTH, HEADS, INNER = 384, 12, 1536
POSITIONS = 96
BLOCK = 64
"""How many inputs of a row of a matrix share a scale in 4 bits."""
EPSILON = 1e-12
