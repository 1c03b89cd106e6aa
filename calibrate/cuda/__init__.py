"""The kernels of ``kernels/``: compiled with NVRTC for a GPU or g++ for a CPU, launched on torch tensors."""
