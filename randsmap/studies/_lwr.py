"""Case study 1 of the paper: Lighthill-Whitham-Richards traffic (Sec. 5.1, App. G)."""

import numpy as np

from randsmap.datasets import make_lwr
from randsmap.encoders import DiffusionMaps
from randsmap.studies._figures import field_view
from randsmap.studies._study import Study, paper_cases, searched_cases

__all__ = ["lwr_study"]


def lwr_study() -> Study:
    """The traffic study as the paper describes it.

    12000 snapshots of 100 trajectories, split at random into 2000 for training, 2000 for validation
    and 8000 for testing; diffusion maps with alpha = 0 and d = 2; lambda = 1e-3; ten values of each
    hyperparameter over the paper's range. The paper's "sigma_w" is the length scale of the Gaussian
    kernel (its text prints the inverse), hence its geometric grid.

    Returns
    -------
    Study

    Examples
    --------
    >>> from randsmap.studies import lwr_study
    >>> lwr_study().sizes
    ((2000, 2000, 8000),)
    """
    encoder = DiffusionMaps(n_components=2, alpha=0.0)
    return Study(
        name="lwr",
        dataset="lwr",
        title="LWR traffic (M = 400)",
        section="Sec. 5.1, App. G",
        make_data=make_lwr,
        sizes=((2000, 2000, 8000),),
        encoder=encoder,
        cases=(
            *paper_cases(
                conserves=True,
                d=2,
                length_scale=(0.1, 1.0),
                max_frequency=(2.0, 15.0),
                slope=(1.0, 20.0),
                ddm_scale=(0.2, 1.0),
                n_neighbors=(2, 11),
                starred=(0.6, 5),
            ),
            *searched_cases(encoder, conserves=True),
        ),
        view=_view,
        starred=(0.6, 5),
        has_trajectories=True,
        notes=(
            "The data cannot be the paper's: its random draws are not known.",
            "N = 2000 training points: the text and the figures say so, the captions of the tables say 1000.",
            "The initial bump gets its noise, is clipped at 0 and divided by its sum, then "
            "integrated: densities of 0.02 to 0.05, shocks form late (the text, taken literally).",
        ),
    )


def _view(about, _):
    return field_view(
        (about["cell_centers"],),
        ("x",),
        (0, 1, 2),
        np.column_stack([about["times"], about["trajectories"]]),
        ("time", "trajectory"),
        target=(0, 15.0),
    )  # shocks have formed by then
