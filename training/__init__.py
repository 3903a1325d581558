"""How the shipped weights are made: data, checks, training, export. Not part of the wheel."""
