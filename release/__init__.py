"""Build and check a release: `python -m release`. Not part of any wheel."""
