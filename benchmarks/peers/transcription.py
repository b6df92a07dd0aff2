"""The paper's algorithm in plain NumPy, as a careful user would write it from the text.

Baseline of the speed table: diffusion maps with the Nystroem extension, sigmoid features, and the
conservative ridge solution once by SVD (paper, Eq. ShurAfinal0) and once by Cholesky of the normal
equations. Fields are rows.
"""

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse.linalg import eigsh

REGULARIZATION = 1e-3
TRUNCATION = 1e-8


def squared_distances(X, Z):
    D = (X**2).sum(axis=1)[:, None] + (Z**2).sum(axis=1) - 2 * X @ Z.T
    return np.maximum(D, 0)


class DiffusionMaps:
    """App. C: alpha = 0, epsilon = median distance, two coordinates."""

    def fit_transform(self, F, d=2):
        D = squared_distances(F, F)
        self.F = F
        self.epsilon = np.sqrt(np.median(D[np.triu_indices(len(F), 1)]))
        K = np.exp(-D / self.epsilon**2)
        degree = K.sum(axis=1)
        S = K / np.sqrt(np.outer(degree, degree))
        values, U = eigsh(S, d + 1, v0=np.ones(len(F)))
        order = np.argsort(values)[::-1]
        V = U[:, order] / U[:, order[:1]]
        self.values, self.V = values[order][1:], V[:, 1:]
        return self.V

    def transform(self, F):
        K = np.exp(-squared_distances(F, self.F) / self.epsilon**2)
        return (K @ self.V) / K.sum(axis=1)[:, None] / self.values


def draw_sigmoid(Y, P, slope, rng):
    W = rng.uniform(-slope, slope, (Y.shape[1], P))
    centres = rng.uniform(Y.min(axis=0)[:, None], Y.max(axis=0)[:, None], (Y.shape[1], P))
    return W, -(W * centres).sum(axis=0)


def feature_matrix(Y, W, b):
    return np.hstack([np.ones((len(Y), 1)), 1 / (1 + np.exp(-(Y @ W + b)))])


def fit_svd(Phi, F):
    """Eq. ShurAfinal0: conserves the mass on the training points, up to the truncation."""
    n, M = F.shape
    U, s, Vt = np.linalg.svd(Phi, full_matrices=False)
    keep = s > TRUNCATION * s[0]
    U, s, Vt = U[:, keep], s[keep], Vt[keep]
    ones = np.ones(n)
    defect = ones - U @ ((1 + REGULARIZATION / s**2) * (U.T @ ones))
    return Vt.T @ ((s / (s**2 + REGULARIZATION))[:, None] * (U.T @ (F - np.outer(defect, np.ones(M)) / M)))


def fit_cholesky(Phi, F):
    """Eq. vanillaTikhonov, then the correction that conserves the mass everywhere."""
    gram = Phi.T @ Phi
    gram[np.diag_indices_from(gram)] += REGULARIZATION
    A = cho_solve(cho_factor(gram), Phi.T @ F)
    defect = -A.sum(axis=1)
    defect[0] += 1
    return A + defect[:, None] / F.shape[1]


FITS = {"svd": fit_svd, "cholesky": fit_cholesky}


def relative_l2(F, F_hat):
    return np.linalg.norm(F_hat - F, axis=1) / np.linalg.norm(F, axis=1)


def study(F_train, F_validation, F_test, form, slopes, seed=0):
    """Encode, tune the slope, fit, test with P = N sigmoid features; the mean test error."""
    encoder = DiffusionMaps()
    Y = encoder.fit_transform(F_train)
    Y_validation, Y_test = encoder.transform(F_validation), encoder.transform(F_test)
    P = len(Y)

    def fitted(slope):
        W, b = draw_sigmoid(Y, P, slope, np.random.default_rng(seed))
        return W, b, FITS[form](feature_matrix(Y, W, b), F_train)

    def predict(model, Y):
        W, b, A = model
        return feature_matrix(Y, W, b) @ A

    errors = [relative_l2(F_validation, predict(fitted(s), Y_validation)).mean() for s in slopes]
    model = fitted(slopes[int(np.argmin(errors))])
    return float(relative_l2(F_test, predict(model, Y_test)).mean())
