"""Who calls, what they may do, and the part of the catalog they can reach."""
