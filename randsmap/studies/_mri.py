"""Case study 2 of the paper: rotations of an MRI image (Sec. 5.2, App. H)."""

import os
import warnings
from pathlib import Path

import numpy as np

from randsmap.datasets import make_rotated_images, warn_unless_covered_once
from randsmap.encoders import DiffusionMaps
from randsmap.studies._figures import field_view
from randsmap.studies._study import Study, paper_cases, searched_cases

__all__ = ["mri_study"]

_PHANTOM = (
    "The image cannot be the paper's, slice 4 of MATLAB's mri data, which may not be "
    "redistributed: an analytic head phantom stands in for it; --data mri.mat takes the "
    "paper's."
)


def mri_study(image: str | os.PathLike[str] | None = None) -> Study:
    """The study of rotated images as the paper describes it.

    3600 rotations of one image, 720 for training, 720 for validation and 2160 for testing; diffusion
    maps with alpha = 1, w_1 = 0.5 and d = 2.

    Parameters
    ----------
    image : path, optional
        Your own image (see `randsmap.datasets.make_rotated_images`); by default the head phantom.

    Returns
    -------
    Study

    Examples
    --------
    >>> from randsmap.studies import mri_study
    >>> mri_study().sizes
    ((720, 720, 2160),)
    """
    options, notes = {}, (_PHANTOM,)
    if image is not None:
        options = {"image": str(image)}
        notes = (f"The image is {Path(image).name}.",)
    encoder = DiffusionMaps(n_components=2, alpha=1.0, epsilon_scale=0.5)
    return Study(
        name="mri",
        dataset="mri",
        title="Rotated images (M = 128 x 128)",
        section="Sec. 5.2, App. H",
        make_data=make_rotated_images,
        data_options=options,
        sizes=((720, 720, 2160),),
        encoder=encoder,
        cases=(
            *paper_cases(
                conserves=True,
                d=2,
                length_scale=(0.02, 0.1),
                max_frequency=(35.0, 65.0),
                slope=(45.0, 120.0),
                ddm_scale=(0.2, 1.0),
                n_neighbors=(2, 11),
                starred=(0.4, 13),
            ),
            *searched_cases(encoder, conserves=True),
        ),
        view=_view,
        starred=(0.4, 13),
        notes=(
            *notes,
            "Bilinear rotation by 3600 equally spaced angles: the paper says neither how "
            "it interpolates nor how it spaces them.",
        ),
        check_embedding=_check_embedding,
    )


def _view(about, n_cells):
    height, width = (int(size) for size in about["shape"])
    axes = np.arange(float(height)), np.arange(float(width))
    # statistics are those of rows, then of columns
    return field_view(
        axes,
        ("row", "column"),
        (3, 0, 4),
        about["angles"][:, None],
        ("angle",),
        color=("intrinsic", 0),
        color_name="angle",
        target=(0, 0.0),
        with_axes=False,
    )


def _check_embedding(latents, about, rows):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        number = warn_unless_covered_once(latents, about["angles"][rows])
    for warning in caught:
        warnings.warn(warning.message, stacklevel=2)
    return [
        f"While the image makes one turn its embedding goes round {abs(number)} time"
        f"{'' if abs(number) == 1 else 's: angles share latent points, errors mean little'}."
    ]
