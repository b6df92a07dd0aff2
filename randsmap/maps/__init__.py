"""The linear map [1 | phi(y)] A with its invariants: bases, derivatives, images, extrapolation."""
