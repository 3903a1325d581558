"""Adapters to the APIs of providers and frameworks; each framework is imported by its own module only."""
