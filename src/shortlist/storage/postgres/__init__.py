"""PostgreSQL as the shared store of several gateways; needs the extra `postgres`."""
