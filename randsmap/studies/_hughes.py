"""Case study 3 of the paper: Hughes's crowd in a corridor with an obstacle (Sec. 5.3, App. I)."""

import numpy as np

from randsmap.datasets import make_hughes
from randsmap.encoders import DiffusionMaps
from randsmap.studies._figures import field_view
from randsmap.studies._study import Study, paper_cases, searched_cases

__all__ = ["hughes_study"]

_READINGS = {
    "before": "The initial density has integral 1 before it is integrated (peak about 0.05 persons "
    "per m^2); --normalization after integrates it as drawn, 1.2 to 2.1.",
    "after": "The initial density is integrated as drawn (peak 1.2 to 2.1 persons per m^2) and only "
    "the snapshots are divided by their sum: the other reading of the paper.",
}


def hughes_study(normalization: str = "before") -> Study:
    """The crowd study as the paper describes it.

    30000 snapshots of 80 trajectories, split at random into 5000 for training, 5000 for validation
    and 20000 for testing; diffusion maps with alpha = 1, w_1 = 0.4 and d = 10.

    Parameters
    ----------
    normalization : {"before", "after"}, default "before"
        See `randsmap.datasets.make_hughes`.

    Returns
    -------
    Study

    Examples
    --------
    >>> from randsmap.studies import hughes_study
    >>> hughes_study().sizes
    ((5000, 5000, 20000),)
    """
    encoder = DiffusionMaps(n_components=10, alpha=1.0, epsilon_scale=0.4)
    return Study(
        name="hughes",
        dataset="hughes",
        title="Hughes crowd (M = 200 x 50)",
        section="Sec. 5.3, App. I",
        make_data=make_hughes,
        data_options={"normalization": normalization},
        quick_options={"n_trajectories": 16},
        quick_sizes=((1000, 1000, 4000),),
        sizes=((5000, 5000, 20000),),
        encoder=encoder,
        cases=(
            *paper_cases(
                conserves=True,
                d=10,
                length_scale=(0.2, 1.0),
                max_frequency=(1.0, 10.0),
                slope=(1.0, 20.0),
                ddm_scale=(0.1, 1.0),
                n_neighbors=(2, 18),
                starred=(1.45, 25),
            ),
            *searched_cases(encoder, conserves=True),
        ),
        view=_view,
        tuning_draws=1,
        tuning_samples=1000,
        tuning_left_out=1e-6,
        training_form=False,
        starred=(1.45, 25),
        has_trajectories=True,
        notes=(
            "The data cannot be the paper's: its random draws are not known.",
            _READINGS[normalization],
            "The paper's optimum w_2 = 1.45 lies outside the range 0.1 to 1 that its text gives: "
            "the range is kept, and DDM-r25 tries 1.45 besides.",
            "Feature maps are tuned on one draw of the features, not three as in the other studies. All "
            "candidates are judged on 1000 of the 5000 validation samples and, but for k-NN, by their "
            "coefficients in the leading modes of the training fields (all but 1e-6 of the energy). At "
            "P = N/4 a tuning on all samples and cells finds the same values, and on the same samples "
            "its errors differ by less than 0.05 %.",
        ),
    )


def _view(about, _):
    nx, ny = (int(size) for size in about["shape"])
    x, y = about["cell_centers"].reshape(nx, ny, 2).transpose(2, 0, 1)
    return field_view(
        (x[:, 0].copy(), y[0].copy()),
        ("x", "y"),
        (0, 3, 1),
        np.column_stack([about["times"], about["trajectories"]]),
        ("time", "trajectory"),
        mask=about["mask"].reshape(nx, ny),
        target=(0, 10.0),
    )  # the crowd passes the obstacle
