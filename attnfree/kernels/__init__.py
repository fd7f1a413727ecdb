"Triton kernels for GPUs; they need triton, which comes with PyTorch for Linux."
