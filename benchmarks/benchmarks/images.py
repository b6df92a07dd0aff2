"""Rotation of one image by many angles."""

import numpy as np

import randsmap
from randsmap.datasets import head_phantom, make_rotated_images


class Rotation:
    params = [64, 128]
    param_names = ["size"]
    n = 360

    def setup(self, size):
        self.image = head_phantom(size)
        self.out = np.empty((self.n, size * size))
        randsmap.set_num_threads(1)

    def teardown(self, size):
        randsmap.set_num_threads(None)

    def time_rotate(self, size):
        make_rotated_images(self.n, image=self.image, out=self.out)

    def time_scipy(self, size):
        # the yardstick: the same rotations, a tenth of them
        from scipy.ndimage import rotate

        for k in range(self.n // 10):
            rotate(self.image, 10 * k, order=1, reshape=False, mode="grid-constant")

    def peakmem_rotate(self, size):
        make_rotated_images(self.n, image=self.image, out=self.out)

    def track_mass_error(self, size):
        return float(abs(make_rotated_images(self.n, image=self.image).data.sum(axis=1) - 1).max())

    def track_l2_error_to_scipy(self, size):
        from scipy.ndimage import rotate

        rotated = make_rotated_images(7, image=self.image)
        worst = 0.0
        for row, angle in zip(rotated.data, rotated.angles):
            exact = rotate(self.image, np.rad2deg(angle), order=1, reshape=False, mode="grid-constant").ravel()
            exact /= exact.sum()
            worst = max(worst, np.linalg.norm(row - exact) / np.linalg.norm(exact))
        return float(worst)
