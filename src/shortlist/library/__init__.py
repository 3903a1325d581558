"""The parts of the front door in `shortlist.library.filter`: options, setup, results, sources, shared query vectors."""
