"""Session windows on kernels: see `window`."""
