"""Public names that belong together: "See Also" of `help`, and of the pages of the site."""

from __future__ import annotations

import inspect
import re
import sys
from typing import Any

# related names, and their guides in docs
RELATED = [
    ("AutoDecoder RANDSMAPDecoder RFNNDecoder KernelDecoder DoubleDiffusionMapsDecoder KNNDecoder BlendedDecoder "
     "ConservativeRegressor", "decoders guarantees errors embedding"),
    ("ManifoldModel ParametricModel ShiftRegistration QuantileRegistration", "start tuning parameters moving-fields"),
    ("SampledModel sample_cells stencil LatentForecast", "reduced-models forecasts"),
    ("POD DiffusionMaps Isomap encoders.estimate_n_components", "tuning sparse-diffusion-maps"),
    ("FourierFeatures MaternFeatures MultiscaleFourierFeatures SigmoidFeatures MonomialFeatures", "decoders tuning"),
    ("autotune tune leave_one_out tuning.choose_parametric AutoDecoder", "tuning"),
    ("project_bounds ConservativeRegressor", "guarantees"),
    ("metrics.relative_l2 metrics.relative_linf metrics.scaled_l2 metrics.scaled_linf metrics.conservation_error "
     "model.reconstruction_errors", "notation"),
    ("read_snapshots load persistence.save", "files text-files shapes"),
    ("model.calibrate ExtrapolationWarning", "errors extrapolation"),
    ("FrozenDecoder FrozenModel get_include", "embedding"),
    ("export.fmu export.onnx jax.decoder torch.decoder", "exporting"),
    ("distributed.fit distributed.fit_model distributed.transform distributed.inverse_transform distributed.score "
     "distributed.from_npy", "distributed large"),
    ("reports.write_model_report", "reports"),
    ("LWRSolver HughesSolver solve_eikonal datasets.make_lwr datasets.make_hughes", "studies"),
    ("set_num_threads get_num_threads show_progress", "installation"),
    ("plotting.plot_field plotting.plot_fields plotting.plot_space_time plotting.plot_comparison "
     "plotting.plot_reconstructions plotting.animate_comparison plotting.style", "reports"),
    ("plotting.plot_errors plotting.plot_embedding plotting.plot_leverage plotting.plot_spectrum "
     "plotting.plot_error_vs_dimension plotting.plot_conservation plotting.style", "reports"),
    ("datasets.make_swiss_roll datasets.make_s_curve datasets.make_rotated_images datasets.head_phantom "
     "datasets.winding_number", "studies"),
    ("studies.Study studies.DecoderCase studies.StudyResult studies.run_study studies.load_result "
     "studies.write_report studies.format_table studies.claims_markdown", "studies reports"),
    ("studies.swiss_roll_study studies.s_curve_study studies.lwr_study studies.mri_study studies.hughes_study "
     "studies.run_study", "studies results"),
    ("tuning.search_summary autotune tune", "tuning"),
]  # fmt: skip


def with_see_also(name: str, thing: Any) -> Any:
    """The public object of this name, whose docstring lists what belongs with it, in front of notes and examples."""
    found, text = [each for each in RELATED if name in each[0].split()], inspect.getdoc(thing)
    # pages of the site have a list with summaries
    if found and text and "\nSee Also\n" not in text and "sphinx" not in sys.modules:
        others = dict.fromkeys(other for names, _ in found for other in names.split() if other != name)
        guides = ", ".join(dict.fromkeys(f"docs/{guide}.md" for _, each in found for guide in each.split()))
        section = f"See Also\n--------\n{', '.join(others)}\nGuides: {guides}\n\n"
        thing.__doc__ = re.sub(r"^(?=(Notes|References|Examples)\n---)", section, text, count=1, flags=re.MULTILINE)
    return thing
