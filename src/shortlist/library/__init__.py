"""The parts of the front door in `shortlist.filter`: options, results, sources, shared query vectors."""
