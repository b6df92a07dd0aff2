"""
Six decoders compared
=====================

Six decoders of the same coordinates: errors of fields that were left out, and times.
"""

# sphinx_gallery_thumbnail_path = "_static/thumbnails/2.png"
import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.neighbors import KNeighborsRegressor

import randsmap
from randsmap.datasets import make_s_curve

# %%
# Points of an S-curve in 20 dimensions. The curve is folded, so that a linear method needs many coordinates. The
# encoder selects the second eigenvector that is not a function of the first (``select="non-harmonic"``).

points = make_s_curve(900, random_state=0).data
train, test = points[::2], points[1::2]
encoder = randsmap.DiffusionMaps(2, epsilon_scale=0.2, select="non-harmonic").fit(train)
latents, test_latents = encoder.transform(train), encoder.transform(test)

decoders = {
    "AutoDecoder": randsmap.AutoDecoder(random_state=0),
    "KernelDecoder\n(Matern, tail)": randsmap.KernelDecoder("matern", nu=2.5, degree=1, regularization=1e-5),
    "RANDSMAPDecoder\nuntuned": randsmap.RANDSMAPDecoder(invariants=None, random_state=0),
    "DoubleDiffusion\nMapsDecoder": randsmap.DoubleDiffusionMapsDecoder(),
    "KNNDecoder\n(encoder)": randsmap.KNNDecoder(6, objective="encoder", encoder=encoder),
    "scikit-learn\nk-NN": KNeighborsRegressor(6, weights="distance"),
}

# %%
# Each is fitted to the 450 training points and decodes the other 450.

results = {}
for name, decoder in decoders.items():
    start = time.perf_counter()
    decoder.fit(latents, train)
    fitted = time.perf_counter()
    decoded = decoder.predict(test_latents)
    seconds = fitted - start, time.perf_counter() - fitted
    results[name] = np.mean(randsmap.metrics.relative_l2(test, decoded)), *seconds
    label = name.replace("\n", " ")
    print(f"{label:32} error {results[name][0]:6.2%}   fit {seconds[0]:6.3f} s   decode {seconds[1]:.3f} s")

# %%
# The best decoder depends on the data; see :doc:`the table of measured errors </decoders>`. The search is the safe
# choice if its time does not matter.

figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", sharey=True)
labels = list(results)[::-1]
axes[0].barh(labels, [100 * results[name][0] for name in labels], color="C0")
axes[0].set_xlabel("mean relative L2 error on test points, %")
axes[1].barh(labels, [1e6 * results[name][2] / len(test) for name in labels], color="C1")
axes[1].set(xlabel="decode, microseconds per point", xscale="log", xlim=(1, 1000))
plt.show()
