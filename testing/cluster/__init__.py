"""Several servers over one replicated state, for tests of failover."""
