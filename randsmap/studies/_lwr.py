"""Case study 1 of the paper: Lighthill-Whitham-Richards traffic (Sec. 5.1, App. G)."""

import numpy as np

from randsmap.datasets import make_lwr
from randsmap.decoders import RANDSMAPDecoder, RFNNDecoder
from randsmap.encoders import DiffusionMaps
from randsmap.features import FourierFeatures, MultiscaleFourierFeatures, SigmoidFeatures
from randsmap.studies._runner import DecoderCase, Study

__all__ = ["lwr_study"]


def lwr_study():
    """The traffic study as the paper describes it.

    12000 snapshots of 100 trajectories, split at random into 2000 for training, 2000 for validation
    and 8000 for testing; diffusion maps with alpha = 0 and d = 2; lambda = 1e-3; ten values of each
    hyperparameter over the paper's range. The paper's "sigma_w" is the length scale of the Gaussian
    kernel (its text prints the inverse), hence its geometric grid.

    Returns
    -------
    Study
    """
    fourier = FourierFeatures()
    multiscale = MultiscaleFourierFeatures()
    sigmoid = SigmoidFeatures()
    length_scale = ("features__length_scale", tuple(np.geomspace(0.1, 1.0, 10)))
    max_frequency = ("features__max_frequency", tuple(np.linspace(2.0, 15.0, 10)))
    slope = ("features__slope", tuple(np.linspace(1.0, 20.0, 10)))
    return Study(
        dataset="lwr",
        make_data=make_lwr,
        n_train=2000,
        n_validation=2000,
        n_test=8000,
        encoder=DiffusionMaps(n_components=2, alpha=0.0),
        cases=(
            DecoderCase("RANDSMAP-RFF", RANDSMAPDecoder(fourier), *length_scale),
            DecoderCase("RANDSMAP-MS-RFF", RANDSMAPDecoder(multiscale), *max_frequency),
            DecoderCase("RANDSMAP-Sig", RANDSMAPDecoder(sigmoid), *slope),
            DecoderCase("RFNN-Sig", RFNNDecoder(sigmoid), *slope),
        ),
    )
