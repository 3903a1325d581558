"""Tools in the words of other people's APIs and frameworks; each framework is imported by its own module only."""
