"""Structure-aware fuzzers: parsers in process, and a running gateway over HTTP and stdio."""
