"""The parts of the front door in `shortlist.filter`: options, setup, results, sources, shared query vectors."""
