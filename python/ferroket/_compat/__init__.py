"""What JAX and NetKet don't promise, or say in other words from version to version."""
