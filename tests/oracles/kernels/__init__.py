"""What the kernels must give, in numpy: plain, slow, and the specification of each family."""
