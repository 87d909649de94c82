"""The operator families in pure JAX: for GPUs, for derivatives, and as the readable form of the Rust kernels."""
