"""The result of `autotune` in words."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import Bunch


def advised_components(result: Bunch) -> int | None:
    """One more latent coordinate than `autotune` found, if that lowers the held-out error much; else None."""
    much = 0.7  # documented; the estimate is of two folds only
    if not result.error_with_one_more_component_ < much * result.held_out_error_:
        return None
    return int(result.best_model_.encoder_.n_components) + 1


def search_summary(result: Bunch) -> list[str]:
    """Describe the encoder, the decoders and the error that `autotune` found.

    Parameters
    ----------
    result : Bunch
        What `autotune` returned, without a `model` of its caller.

    Returns
    -------
    list of str
        Lines to print.

    Raises
    ------
    AttributeError
        If the result is none of `autotune`.

    Examples
    --------
    >>> import numpy as np, randsmap
    >>> angle = np.linspace(0, np.pi, 40)
    >>> arc = np.column_stack([np.cos(angle), np.sin(angle)]) ** 2
    >>> result = randsmap.autotune(arc, n_components=1, n_trials=10, random_state=0)
    >>> randsmap.tuning.search_summary(result)[-1].startswith("held-out relative L2 error ")
    True
    """
    encoder, table = result.best_model_.encoder_, result.decoder_results_
    decoders = [_decoder_in_words(table, i) for i in table.chosen.nonzero()[0]]
    return [
        f"encoder: {_encoder_in_words(encoder)}",
        f"decoder: {decoders[0] if len(decoders) == 1 else f'the median of {len(decoders)}:'}",
        *(f"  {text}" for text in decoders if len(decoders) > 1),
        result.best_model_.held_out_.in_words,
    ]


def _encoder_in_words(encoder: Any) -> str:
    d = encoder.n_components
    if not hasattr(encoder, "selected_"):
        return f"{type(encoder).__name__}, {d} mode{_plural(d)}"
    modes = ", ".join(map(str, encoder.selected_))
    width = f"epsilon {encoder.epsilon_:.4g} ({encoder.epsilon_scale:.3g} of the median distance)"
    return f"diffusion maps, {width}, eigenvector{_plural(d)} {modes}"


def _decoder_in_words(table: Bunch, i: int) -> str:
    """Trial i of the search for decoders."""
    lengths = [table[name][i] for name in table if name.startswith("length_scale_")]
    details = [f"nu {table.nu[i]:g}"] if np.isfinite(table.nu[i]) else []
    details.append(f"length scale{_plural(len(lengths))} " + ", ".join(f"{x:.3g}" for x in lengths))
    if np.isfinite(table.regularization[i]):
        details.append(f"regularization {table.regularization[i]:.2g}")
    if table.n_neighbors[i]:
        details.append(f"{table.n_neighbors[i]} neighbour{_plural(table.n_neighbors[i])}")
    return f"{table.family[i]} ({'; '.join(details)})"


def _plural(count: int) -> str:
    return "" if count == 1 else "s"
