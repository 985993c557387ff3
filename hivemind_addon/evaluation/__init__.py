"""The mock provider and the load that proves the scheduler."""
