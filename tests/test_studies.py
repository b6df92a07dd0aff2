"""Studies: their definitions against the paper, and the runner on tiny data."""

import csv
import itertools
import json
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.utils import Bunch

import randsmap
from randsmap import studies
from randsmap.studies import _result, _runner, _study

ERRORS = ("rel_l2", "rel_linf", "conservation")
NAMES = ("swiss-roll", "s-curve", "lwr", "mri", "hughes")


def definition(name):
    return getattr(studies, f"{name.replace('-', '_')}_study")()


# -- Definitions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_every_row_of_the_paper_has_a_row(name):
    """By the keys that the table joins on; the DDM rows twice, where the paper stars a rank."""
    study = definition(name)
    ours = {
        (n_train, fraction, case.paper_label or (None if case.extra else case.label))
        for n_train, _, _ in study.sizes
        for case in study.cases
        for fraction in _runner.fractions(case, quick=False)
    }
    paper = [row for row in _result.paper_rows() if row["dataset"] == study.dataset]
    assert paper
    for row in paper:
        assert (row["n_train"], row["features_per_sample"], row["decoder"]) in ours
    # and nothing else claims to be in the paper
    assert {decoder for *_, decoder in ours} - {None} == {row["decoder"] for row in paper}


# Sec. 5, App. E-I: (N, ...), d, alpha, w_1, ranges of sigma_w, sigma_UB, c, w_2, k; star
PAPER = {
    "swiss-roll": ((1000, 2000), 2, 1.0, 0.12, (0.1, 1), (1, 10), (1, 20), (0.3, 0.9), (2, 11), None),
    "s-curve": ((1000,), 2, 1.0, 0.2, (0.1, 1), (2, 10), (5, 18), (0.3, 0.9), (2, 11), None),
    "lwr": ((2000,), 2, 0.0, 1.0, (0.1, 1), (2, 15), (1, 20), (0.2, 1), (2, 11), (0.6, 5)),
    "mri": ((720,), 2, 1.0, 0.5, (0.02, 0.1), (35, 65), (45, 120), (0.2, 1), (2, 11), (0.4, 13)),
    "hughes": ((5000,), 10, 1.0, 0.4, (0.2, 1), (1, 10), (1, 20), (0.1, 1), (2, 18), (1.45, 25)),
}


@pytest.mark.parametrize("name", NAMES)
def test_grids_and_encoder_are_the_papers(name):
    study = definition(name)
    sizes, d, alpha, w1, lengths, frequencies, slopes, scales, neighbors, star = PAPER[name]
    assert study.name == name and study.starred == star
    assert tuple(n for n, _, _ in study.sizes) == sizes
    assert all(n == n_validation for n, n_validation, _ in study.sizes)
    encoder = study.encoder
    assert (encoder.n_components, encoder.alpha, encoder.epsilon_scale) == (d, alpha, w1)
    assert encoder.select == ("non-harmonic" if name == "s-curve" else "leading")
    expected = {
        "features__length_scale": lengths,
        "features__max_frequency": frequencies,
        "features__slope": slopes,
        "epsilon_scale": scales,
        "n_neighbors": neighbors,
        "length_scale": lengths,
        "max_frequency": frequencies,
    }
    for case in study.cases:
        if case.parameter is None:
            assert not case.grid
            continue
        low, high = expected[case.parameter]
        grid = case.grid[:10]
        assert len(grid) == len(set(grid)) == 10
        assert min(grid) == pytest.approx(low) and max(grid) == pytest.approx(high)
        assert case.grid[10:] in ((), () if star is None else star[:1])
        assert getattr(case.decoder, "regularization", 1e-3) == 1e-3
    labels = [case.label for case in study.cases]
    assert len(set(labels)) == len(labels)
    assert all(case.tuned_as in labels for case in study.cases if case.tuned_as)


def test_split_sizes_make_the_papers_data_sets():
    sizes = {name: {sum(s) for s in definition(name).sizes} for name in NAMES}
    assert sizes == {"swiss-roll": {10000}, "s-curve": {10000}, "lwr": {12000}, "mri": {3600}, "hughes": {30000}}


def test_decoders_that_the_paper_lacks_are_marked():
    for name in NAMES:
        extra = {case.label for case in definition(name).cases if case.extra}
        assert {"Kernel-Gauss", "Kernel-multi-Gauss", "POD", "Quadratic"} <= extra
        if name in ("lwr", "mri", "hughes"):
            assert {
                "DDM-mass",
                "RANDSMAP-Sig-bounds",
                "RANDSMAP-RFF-training",
                "RANDSMAP-MS-RFF-training",
                "RANDSMAP-Sig-training",
            } <= extra


def test_decoders_that_are_searched_for():
    for name in NAMES:
        study = definition(name)
        searched = {case.label: case for case in study.cases if case.searched}
        kind = "RANDSMAP" if study.conserves else "RFNN"
        names = [f"{family}-auto{suffix}" for suffix in ("", "-encoder") for family in (kind, "Kernel", "k-NN", "DDM")]
        assert list(searched) == names
        for label, case in searched.items():
            assert case.extra and case.decoder.invariants == ("mass" if study.conserves else None)
            assert case.encoder == ("autotune" if label.endswith("-encoder") else None)


# -- Runner ----------------------------------------------------------------------------------------


def bumps(random_state, out, progress, n_trajectories=6):
    """Bumps that move to the right, 15 a trajectory: 30 cells, sum 1."""
    rng = np.random.RandomState(random_state)
    x = np.linspace(0, 1, 30)
    times = np.tile(np.linspace(0, 1, 15), n_trajectories)
    start = np.repeat(rng.uniform(0.25, 0.4, n_trajectories), 15)
    F = np.exp(-(((x - (start + 0.35 * times)[:, None]) / 0.1) ** 2))
    F /= F.sum(axis=1, keepdims=True)
    np.save(out, F)
    return Bunch(
        data=F, times=times, trajectories=np.repeat(np.arange(n_trajectories), 15), cell_centers=x, name="bumps"
    )


@pytest.fixture
def study():
    ranges = {
        "length_scale": (0.1, 1),
        "max_frequency": (2, 15),
        "slope": (1, 20),
        "epsilon_scale": (0.2, 1),
        "n_neighbors": (2, 11),
    }
    cases = _study.paper_cases(ranges, conserves=True, d=1, starred=(0.6, 5))
    return replace(
        studies.lwr_study(),
        make_data=bumps,
        sizes=((40, 20, 30),),
        cases=cases,
        encoder=randsmap.DiffusionMaps(n_components=1),
        tuning_draws=2,
    )


def run(study, out, **kwargs):
    kwargs.setdefault("decoders", ["RANDSMAP-Sig", "RFNN-Sig"])
    return studies.run_study(study, out=out, progress=False, **kwargs)


def errors(result):
    return [{k: v for k, v in row.items() if "seconds" not in k} for row in result.rows]


def test_rows(study, tmp_path):
    rows = run(study, tmp_path, runs=2).rows
    assert [(r["split"], r["decoder"], r["features_per_sample"]) for r in rows] == [
        (split, decoder, fraction)
        for split in ("train", "test")
        for decoder in ("RANDSMAP-Sig", "RFNN-Sig")
        for fraction in (1.0, 0.5, 0.25)
    ]
    for row in rows:
        assert tuple(sorted(row)) == tuple(sorted(_result.COLUMNS))
        for quantity in (*ERRORS, "seconds"):
            low, median, high = (row[f"{quantity}_{name}"] for name in ("p05", "median", "p95"))
            assert 0 <= low <= median <= high
        if row["decoder"] == "RFNN-Sig":
            assert row["conservation_median"] > 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("split", ["random", "trajectory"])
def test_decoders_are_searched_for_on_the_training_set(study, tmp_path, split, monkeypatch):
    """Rows for both encoders, mass exact; with whole trajectories held out where they are split by."""
    given = []
    chosen = _runner.chosen_encoder

    def choose(X, d, **options):
        assert (d, options["alpha"]) == (study.encoder.n_components, study.encoder.alpha)
        given.append(options["groups"])
        return chosen(X, d, **options)

    monkeypatch.setattr(_runner, "chosen_encoder", choose)
    cases = (*study.cases[:1], *_study.searched_cases(conserves=True))
    study = replace(study, cases=cases, sizes=((45, 15, 30),))
    labels = [f"{name}-auto{suffix}" for suffix in ("", "-encoder") for name in ("Kernel", "k-NN")]
    result = run(study, tmp_path, decoders=labels, split=split, runs=3)
    rows = result.part_rows("N45", "test")
    assert [row["decoder"] for row in rows] == labels
    assert all(row["conservation_p95"] <= 1e-14 and row["runs"] == 1 and row["extra"] for row in rows)
    assert all(0 < row["rel_l2_median"] < 0.3 for row in rows)
    assert sum("The tuned encoder (N = 45): " in note for note in result.notes) == 1
    assert any("Rows with -auto" in note for note in result.notes)
    assert [group is None for group in given] == [split == "random"]
    if split == "trajectory":
        assert len(np.unique(given[0])) == 3
    quick = run(study, tmp_path / "quick", decoders=None, quick=True, runs=1)
    assert [row["decoder"] for row in quick.part_rows("N45", "test")] == ["RANDSMAP-RFF"]
    assert any("--auto adds them" in cut for cut in quick.cuts)


def test_every_decoder(study, tmp_path):
    """Exact mass in every row that promises it; a deterministic decoder runs once."""
    result = run(study, tmp_path, decoders=None, quick=True, runs=3)
    labels = [case.label for case in study.cases]
    assert [row["decoder"] for row in result.part_rows("N40", "test")] == labels
    for row in result.rows:
        if row["decoder"] == "RFNN-Sig":
            assert row["conservation_p95"] > 1e-14
        elif not row["decoder"].endswith("-training") and row["decoder"] not in ("DDM", "DDM-r5"):
            assert row["conservation_p95"] <= 1e-14
        assert row["runs"] == (3 if row["features_per_sample"] else 1)
        assert 0 < row["rel_l2_median"] < 0.5
    assert not [key for key, value in result.arrays.items() if value.dtype == object]
    arrays = {key.removeprefix("N40/"): value for key, value in result.arrays.items()}
    assert arrays["decoders"].tolist() == labels
    truth = arrays["test/statistics"]
    for label in labels:
        assert arrays[f"decoder/{label}/points"].shape == arrays["test/points"].shape == (30, 3)
        assert arrays[f"decoder/{label}/statistics"].shape == truth.shape == (30, 3)
        assert arrays[f"decoder/{label}/field"].shape == arrays["field/truth"].shape == (30,)
        row = next(r for r in result.part_rows("N40", "test") if r["decoder"] == label)
        shown = arrays[f"decoder/{label}/errors"].mean()  # of the first run
        assert shown == pytest.approx(row["rel_l2_median"], rel=1e-12 if row["runs"] == 1 else 1)
    assert abs(arrays["decoder/k-NN/statistics"][:, 0] - truth[:, 0]).max() < 0.1
    assert arrays["ddm/errors"].shape == (len(arrays["ddm/weights"]), len(arrays["ddm/ranks"]))
    assert arrays["ddm/starred"].tolist() == [0.6, 5.0]
    assert arrays["decoder/RANDSMAP-Sig-bounds/field"].min() >= 0
    w2, r, error = arrays["ddm/rule"]
    best = np.flatnonzero(arrays["ddm/weights"] == w2)[0]
    assert arrays["ddm/rule_ranks"][best] == r and arrays["ddm/rule_errors"][best] == error
    loaded = studies.load_result(tmp_path)
    assert loaded.rows == result.rows and loaded.notes == result.notes
    assert all(np.array_equal(loaded.arrays[k], v, equal_nan=v.dtype.kind == "f") for k, v in result.arrays.items())


def test_conservative_and_plain_decoder_share_draws(study, tmp_path):
    rows = run(study, tmp_path, runs=1, quick=True).rows
    exact, plain = (r for r in rows if r["split"] == "test")
    assert exact["hyperparameter"] == plain["hyperparameter"]
    assert exact["rel_l2_median"] == pytest.approx(plain["rel_l2_median"], rel=1e-2)
    assert exact["rel_l2_median"] <= plain["rel_l2_median"]  # an orthogonal projection cannot hurt


@pytest.mark.slow
def test_same_seed_same_files_other_seed_others(study, tmp_path):
    """Bit for bit, apart from the seconds."""

    def table(name, **kwargs):
        result = run(study, tmp_path / name, quick=True, decoders=None, **kwargs)
        _result.write_csv(result.rows, tmp_path / name / "table.csv")
        with open(tmp_path / name / "table.csv", newline="") as file:
            rows = [{k: v for k, v in row.items() if "seconds" not in k} for row in csv.DictReader(file)]
        return rows, result.arrays

    first, arrays = table("a")
    again, same = table("b")
    assert again == first
    assert all(np.array_equal(same[key], arrays[key], equal_nan=arrays[key].dtype.kind == "f") for key in arrays)
    assert table("c", seed=1)[0] != first
    other = table("d", feature_seed=1)[0]
    for row, before in zip(other, first):  # only what draws features differs
        assert (row == before) == (row["features_per_sample"] == "")


def test_interrupted_study_goes_on(study, tmp_path, monkeypatch):
    labels = ["RANDSMAP-Sig", "RFNN-Sig", "DDM", "k-NN", "POD"]
    whole = run(study, tmp_path / "whole", quick=True, runs=3, decoders=labels)
    made = []
    real = _runner.Part._measure

    def interrupted(*args):
        if len(made) == 4:
            raise KeyboardInterrupt
        made.append(args)
        return real(*args)

    monkeypatch.setattr(_runner.Part, "_measure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(study, tmp_path / "cut", quick=True, runs=3, decoders=labels)
    assert not (tmp_path / "cut" / "result.json").exists()
    made.clear()
    monkeypatch.setattr(_runner.Part, "_measure", lambda *args: made.append(args) or real(*args))
    result = run(study, tmp_path / "cut", quick=True, runs=3, decoders=labels)
    assert errors(result) == errors(whole)
    assert len(made) == 5  # of nine runs, four were on disk
    assert result.arrays.keys() == whole.arrays.keys()
    assert all(
        np.array_equal(whole.arrays[key], value, equal_nan=value.dtype.kind == "f")
        for key, value in result.arrays.items()
    )


@pytest.mark.slow
def test_damaged_pieces_are_made_again(study, tmp_path):
    labels = ["RANDSMAP-Sig", "DDM", "DDM-r5"]
    whole = run(study, tmp_path, quick=True, decoders=labels)
    for left in (lambda content: content[:20], lambda content: b"null", lambda content: b""):
        pieces = list((tmp_path / "pieces").iterdir())
        assert {piece.suffix for piece in pieces} == {".npz", ".sha256"}
        for piece in pieces:
            piece.write_bytes(left(piece.read_bytes()))
        result = run(study, tmp_path, quick=True, decoders=labels)
        assert errors(result) == errors(whole)
        assert all(
            np.array_equal(whole.arrays[key], value, equal_nan=value.dtype.kind == "f")
            for key, value in result.arrays.items()
        )


@pytest.mark.parametrize("left", [lambda arrays: {**arrays, "test": 1.1 * arrays["test"]}, lambda arrays: {}])
def test_a_piece_that_still_reads_but_is_another_is_made_again(study, tmp_path, left):
    """Other numbers, or none: only the checksum tells."""
    whole = run(study, tmp_path, quick=True)
    for piece in (tmp_path / "pieces").glob("*-run-*.npz"):
        with np.load(piece) as file:
            arrays = left(dict(file))
        np.savez(piece, **arrays)
    result = run(study, tmp_path, quick=True)
    assert errors(result) == errors(whole)
    assert all(
        np.array_equal(whole.arrays[key], value, equal_nan=value.dtype.kind == "f")
        for key, value in result.arrays.items()
    )


def test_more_runs_and_more_decoders_keep_what_is_done(study, tmp_path):
    run(study, tmp_path, quick=True, runs=1, decoders=["RANDSMAP-Sig"])
    before = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "pieces").iterdir()}
    result = run(study, tmp_path, quick=True, runs=2, decoders=["POD", "RANDSMAP-Sig"])
    after = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "pieces").iterdir()}
    assert len(after) > len(before) and all(after[name] == t for name, t in before.items())
    assert [row["decoder"] for row in result.part_rows("N40", "test")] == ["RANDSMAP-Sig", "POD"]
    assert any("Only the decoders" in cut for cut in result.cuts)
    again = run(study, tmp_path, quick=True, runs=2, decoders=["POD", "RANDSMAP-Sig"])
    assert again.rows == result.rows  # the seconds are those of the pieces


def test_another_configuration_is_refused(study, tmp_path):
    run(study, tmp_path, quick=True, runs=1)
    with pytest.raises(ValueError, match=r"holds another configuration \(different: feature_seed, seed\)"):
        run(study, tmp_path, quick=True, runs=1, seed=3)
    with pytest.raises(ValueError, match=r"different: split"):
        run(study, tmp_path, quick=True, runs=1, split="trajectory")
    for damaged in ("{", "[]"):
        (tmp_path / "config.json").write_text(damaged)
        with pytest.raises(ValueError, match="damaged"):
            run(study, tmp_path, quick=True, runs=1)
    (tmp_path / "config.json").unlink()
    with pytest.raises(ValueError, match="no config.json"):
        run(study, tmp_path, quick=True, runs=1)


@pytest.mark.parametrize(
    "bad",
    [
        {"runs": 0},
        {"seed": -1},
        {"runs": 2.5},
        {"feature_seed": -1},
        {"split": "time"},
        {"decoders": ["RANDSMAP-Sigg"]},
        {"decoders": []},
        {"data": "no such file.npy"},
    ],
)
def test_bad_arguments_write_nothing(study, tmp_path, bad):
    with pytest.raises((TypeError, ValueError, FileNotFoundError)):
        run(study, tmp_path / "out", **bad)
    assert not (tmp_path / "out").exists()


def test_the_papers_form_can_be_left_out(study, tmp_path):
    result = run(study, tmp_path, quick=True, decoders=None, training_form=False)
    assert not any("training" in row["decoder"] for row in result.rows)
    assert any("--training-form" in cut for cut in result.cuts)


def test_random_split_deals_every_sample_once():
    parts = _runner.random_split(90, (40, 20, 30), 0)
    assert [len(part) for part in parts] == [40, 20, 30]
    assert sorted(np.concatenate(parts)) == list(range(90))
    with pytest.raises(ValueError, match="add up"):
        _runner.random_split(91, (40, 20, 30), 0)


@pytest.mark.parametrize("seed", range(3))
def test_trajectory_split_has_no_trajectory_in_two_parts(seed):
    trajectories = np.repeat(np.arange(100), 120)
    parts = _runner.trajectory_split(trajectories, (2000, 2000, 8000), seed)
    assert [len(part) for part in parts[:2]] == [2000, 2000] and 7900 <= len(parts[2]) <= 8000
    for one, other in itertools.combinations(parts, 2):
        assert not set(trajectories[one]) & set(trajectories[other])
    assert all(len(set(part)) == len(part) for part in parts)
    with pytest.raises(ValueError, match="too few"):
        _runner.trajectory_split(trajectories[:300], (200, 200, 100), seed)


def test_study_split_by_trajectories(study, tmp_path):
    result = run(study, tmp_path / "a", quick=True, split="trajectory")
    assert any("whole trajectories" in note for note in result.notes)
    assert errors(result) != errors(run(study, tmp_path / "b", quick=True))
    for name in ("swiss-roll", "s-curve", "mri"):
        with pytest.raises(ValueError, match="no trajectories"):
            run(definition(name), tmp_path / "c", quick=True, split="trajectory")
    assert not (tmp_path / "c").exists()


def test_users_own_snapshots(study, tmp_path):
    path = tmp_path / "mine.npy"
    bumps(3, path, False, n_trajectories=12)
    F = 7 * np.load(path)  # any common mass
    np.save(path, F)
    result = run(study, tmp_path / "out", quick=True, decoders=None, data=path)
    assert result.part_names == ["N80"]
    for row in result.rows:
        assert all(row[f"paper_{q}_median"] is None for q in (*ERRORS, "seconds"))
        if row["decoder"] == "RANDSMAP-Sig":
            assert row["conservation_p95"] <= 1e-14
    assert any("mine.npy" in note for note in result.notes)
    np.save(path, F[::-1])
    with pytest.raises(ValueError, match="different: data"):
        run(study, tmp_path / "out", quick=True, data=path)
    with pytest.raises(ValueError, match="no trajectories"):
        run(study, tmp_path / "out", quick=True, data=path, split="trajectory")


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda F: F * np.linspace(1, 2, len(F))[:, None], "keep the sum"),
        (lambda F: np.where(F == F.max(), np.nan, F), "finite|NaN"),
        (lambda F: F[:20], "at least 30"),
        (lambda F: F[0], "two-dimensional|2"),
    ],
)
def test_users_data_that_do_not_suit(study, tmp_path, make, message):
    bumps(3, tmp_path / "mine.npy", False)
    np.save(tmp_path / "mine.npy", make(np.load(tmp_path / "mine.npy")))
    with pytest.raises(ValueError, match=message):
        run(study, tmp_path / "out", quick=True, data=tmp_path / "mine.npy")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_users_points_through_a_manifold_study(tmp_path):
    points = randsmap.datasets.make_swiss_roll(4000, random_state=1).data
    np.save(tmp_path / "points.npy", points)
    result = run(
        definition("swiss-roll"),
        tmp_path / "out",
        quick=True,
        runs=1,
        decoders=["RFNN-Sig", "k-NN"],
        data=tmp_path / "points.npy",
    )
    assert result.part_names == ["N400", "N800"]
    assert all(row["conservation_median"] is None for row in result.rows)
    assert "conservation" not in _result.table_text(result.rows)[0]


def test_errors_of_empty_and_tiny_fields_are_scaled_by_the_usual_norm():
    rng = np.random.RandomState(0)
    F = rng.uniform(1, 2, (50, 8))
    F[7], F[9] = 0, 1e-12 * F[9]
    F_hat = F + 0.01 * rng.standard_normal(F.shape)
    usual = np.median(np.linalg.norm(np.delete(F, 7, axis=0), axis=1))
    blocks = [
        _runner.sample_errors(F[rows], F_hat[rows], (usual, 2.0), False) for rows in (slice(0, 20), slice(20, 50))
    ]
    errors = np.concatenate(blocks, axis=1)
    expected = np.linalg.norm(F_hat - F, axis=1) / np.maximum(np.linalg.norm(F, axis=1), 1e-3 * usual)
    assert errors[0] == pytest.approx(expected, rel=1e-14)
    assert errors[1].max() < np.inf


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the search for the convex weights")  # of the empty ones
def test_empty_fields_among_the_users_points(tmp_path):
    """One in each part: every figure is finite."""
    points = randsmap.datasets.make_swiss_roll(400, random_state=1).data
    study = replace(definition("swiss-roll"), sizes=((150, 100, 150),))
    for part in _runner.random_split(400, study.sizes[0], _runner.seed_for(0, 1)):
        points[part[0]] = 0
    np.save(tmp_path / "points.npy", points)
    labels = ["RFNN-Sig", "DDM", "k-NN"]
    result = run(study, tmp_path / "out", quick=True, runs=1, decoders=labels, data=tmp_path / "points.npy")
    for row in result.rows:
        assert 0 < row["rel_l2_median"] < np.inf and 0 < row["rel_linf_median"] < np.inf


def test_images_are_watched_for_a_double_cover(tmp_path, recwarn):
    y, x = np.mgrid[-1:1:24j, -1:1:24j]
    symmetric = np.exp(-2 * (x / 0.5) ** 2 - 2 * (y / 0.25) ** 2)
    np.save(tmp_path / "image.npy", symmetric)
    study = replace(studies.mri_study(image=tmp_path / "image.npy"), sizes=((60, 30, 30),))
    study = replace(study, data_options={**study.data_options, "n_samples": 120})
    result = run(study, tmp_path / "out", quick=True, runs=1)
    assert any("2 times round" in str(warning.message) for warning in recwarn)
    assert any("goes round 2 times" in note for note in result.notes)
    assert any("image.npy" in note for note in result.notes)
    assert result.arrays["N60/field/truth"].shape == (24, 24)


def test_samples_on_a_ring_are_coloured_by_the_angle_of_their_mean():
    view = _study._traffic_view({"times": np.arange(4), "trajectory": 0, "trajectories": 0, "cell_centers": 0}, 40)
    place = (np.arange(40) - np.array([[0], [10], [39], [21]]) + 20) % 40 - 20  # cells from the middle of each bump
    angles = view.colors(np.exp(-((place / 4.0) ** 2)), np.arange(4), np.empty((4, 3)))
    np.testing.assert_allclose(angles, 2 * np.pi / 40 * np.array([0, 10, -1, -19]), atol=1e-8)


def test_summary_statistics_of_known_densities():
    x, y = np.linspace(-8, 8, 161), np.linspace(-9, 9, 181)
    normal = np.exp(-((x - 1) ** 2) / 2)[:, None] * np.exp(-((y + 2) ** 2) / (2 * 0.25))
    statistics = _study.summary_statistics(5 * normal.reshape(1, -1), (x, y))
    assert statistics == pytest.approx(np.array([[1, 1, 0, -2, 0.25, 0]]), abs=1e-9)
    exponential = np.exp(-np.linspace(0, 40, 4001))[None]
    mean, variance, skewness = _study.summary_statistics(exponential, (np.linspace(0, 40, 4001),))[0]
    assert (mean, variance, skewness) == pytest.approx((1, 1, 2), abs=0.02)
    assert np.isnan(_study.summary_statistics(np.array([[1.0, -3.0, 1.0]]), (np.arange(3.0),))).any()


def test_map_over_width_and_rank_is_that_of_the_decoder():
    rng = np.random.RandomState(0)
    Y, Y_new = rng.uniform(-1, 1, (60, 2)), rng.uniform(-1, 1, (25, 2))
    F, F_new = (np.column_stack([np.sin(2 * Z[:, 0]), np.cos(Z[:, 1]), Z.prod(axis=1)]) for Z in (Y, Y_new))
    weights, ranks = (0.3, 0.8), (2, 5, 20)
    table = _runner.harmonics_map(Y, F, Y_new, F_new, weights=weights, ranks=ranks)
    for (i, weight), (j, rank) in itertools.product(enumerate(weights), enumerate(ranks)):
        decoder = randsmap.DoubleDiffusionMapsDecoder(
            epsilon_scale=weight, rank=rank, center=False, latent_scale=None
        ).fit(Y, F)
        error = randsmap.metrics.relative_l2(F_new, decoder.predict(Y_new)).mean()
        assert table[i, j] == pytest.approx(error, rel=1e-6)


@pytest.mark.slow
def test_tuning_in_leading_modes_finds_the_same_values(study, tmp_path):
    labels = ["RANDSMAP-Sig", "DDM", "k-NN", "Kernel-Gauss"]
    whole = run(study, tmp_path / "a", runs=1, decoders=labels)
    cut = replace(study, tuning_left_out=1e-9)
    reduced = run(cut, tmp_path / "b", runs=1, decoders=labels)
    assert [row["hyperparameter"] for row in reduced.rows] == [row["hyperparameter"] for row in whole.rows]
    cut = replace(study, tuning_left_out=1e-6, tuning_samples=5)
    run(cut, tmp_path / "c", runs=1, decoders=labels)


@pytest.mark.slow
@pytest.mark.parametrize("again", [False, True])
def test_progress_ends_at_its_total(study, tmp_path, monkeypatch, again):
    """Also when everything is found, and for a decoder whose tuning is another's."""
    labels = ["RANDSMAP-Sig", "RFNN-Sig", "RANDSMAP-Sig-bounds", "DDM", "DDM-r5", "DDM-mass", "k-NN", "POD"]
    counts = []

    @contextmanager
    def counted(total, *args, **kwargs):
        updates = []
        yield SimpleNamespace(update=lambda n=1: updates.append(n))
        counts.append((sum(updates), total))

    if again:
        run(study, tmp_path, runs=2, decoders=labels)
    monkeypatch.setattr(_runner, "ProgressBar", counted)
    studies.run_study(study, out=tmp_path, runs=2, decoders=labels[2:] if again else labels)
    assert counts and all(n == total > 0 for n, total in counts)


@pytest.mark.slow
def test_medians_over_two_sets_of_draws_agree(study, tmp_path):
    """The same data and tuned values, other features: each median within the other's 5-95 % band."""
    one, other = (
        run(
            study, tmp_path / str(k), runs=25, feature_seed=k, quick=True, decoders=["RANDSMAP-RFF", "RANDSMAP-Sig"]
        ).part_rows("N40", "test")
        for k in (1, 2)
    )
    for a, b in zip(one, other):
        assert a["hyperparameter"] == b["hyperparameter"] and a["rel_l2_median"] != b["rel_l2_median"]
        for first, second in ((a, b), (b, a)):
            assert first["rel_l2_p05"] <= second["rel_l2_median"] <= first["rel_l2_p95"]


# -- Tables ----------------------------------------------------------------------------------------


def test_csv_has_the_columns_and_keeps_every_digit(study, tmp_path):
    rows = run(study, tmp_path, quick=True).rows
    _result.write_csv(rows, tmp_path / "table.csv")
    with open(tmp_path / "table.csv", newline="") as file:
        read = list(csv.DictReader(file))
    assert tuple(read[0]) == _result.COLUMNS
    for row, text in zip(rows, read):
        for name, value in row.items():
            if isinstance(value, float):
                assert float(text[name]) == value
    text = studies.format_table(rows)
    assert sum("RFNN-Sig" in line for line in text.splitlines()) == 2
    assert sum("RANDSMAP-Sig" in line for line in text.splitlines()) == 2


def test_markdown_says_where_it_comes_from(study, tmp_path):
    result = run(study, tmp_path, quick=True, command="randsmap study lwr --quick --seed 0")
    _result.write_markdown(result, tmp_path / "table.md")
    text = (tmp_path / "table.md").read_text()
    for part in (result.command, result.date, result.version, *result.notes, *result.cuts):
        assert part in text
    lines = [line for line in text.splitlines() if line.startswith("|")]
    widths = {line.replace("\\|", "").count("|") for line in lines}
    assert len(lines) == 2 * (2 + 2) and len(widths) == 1


def test_a_terminals_table_fits_its_width_and_the_files_keep_all_columns(study, tmp_path, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    result = run(study, tmp_path, quick=True, decoders=None)
    result.rows = _result.with_paper([{**row, "n_train": 2000} for row in result.rows])  # beside the paper's
    header = _result.table_text(result.rows)[0]
    assert header.count("ratio") == header.count("paper") == 4
    narrow = studies.format_table(result.rows)
    assert max(map(len, narrow.splitlines())) <= 80
    assert all(label in narrow for label in ("rel. L2", "conservation", "seconds", "Not shown"))
    monkeypatch.setenv("COLUMNS", "300")
    wide = studies.format_table(result.rows)
    assert all(wide.splitlines()[2].count(name) == header.count(name) for name in header[3:])
    assert 100 < max(map(len, wide.splitlines())) <= 300 and "Not shown" not in wide
    for width in (24, 40, 60, 80, 120):
        assert max(map(len, studies.format_table(result.rows, width).splitlines())) <= width
    _result.write_markdown(result, tmp_path / "table.md")
    assert " | ".join(header) in (tmp_path / "table.md").read_text()


def row_like(**changes):
    row = {
        "dataset": "lwr",
        "split": "test",
        "decoder": "RANDSMAP-Sig",
        "features_per_sample": 1.0,
        "n_train": 2000,
        "rel_l2_median": 0.1586 / 2,
    }
    return {**row, **changes}


def test_paper_columns_are_the_papers_numbers():
    (joined,) = _result.with_paper([row_like()])
    # App. G, test set table: 1.586 (1.583--1.588) x 10^-1, 4.100 x 10^-8, 3.179 s
    assert joined["paper_rel_l2_median"] == 0.1586
    assert joined["paper_rel_l2_p05"] == 0.1583 and joined["paper_rel_l2_p95"] == 0.1588
    assert joined["paper_conservation_median"] == 4.1e-8
    assert joined["paper_seconds_median"] == 3.179
    assert joined["ratio_rel_l2"] == 0.5 and joined["ratio_rel_linf"] is None
    (missing,) = _result.with_paper([row_like(n_train=7)])
    assert missing["paper_rel_l2_median"] is None and missing["ratio_rel_l2"] is None
    (starred,) = _result.with_paper([row_like(decoder="DDM-r5", paper_decoder="DDM", features_per_sample=None)])
    assert starred["paper_rel_l2_median"] == 0.6367 and starred["decoder"] == "DDM-r5"
    (own,) = _result.with_paper([row_like()], paper=False)
    assert own["paper_rel_l2_median"] is None


def test_unfinished_and_damaged_results_are_told(study, tmp_path):
    with pytest.raises(ValueError, match="no finished study"):
        studies.load_result(tmp_path)
    run(study, tmp_path, quick=True)
    content = (tmp_path / "figures.npz").read_bytes()
    (tmp_path / "figures.npz").write_bytes(content[:-50])
    with pytest.raises(ValueError, match="damaged"):
        studies.load_result(tmp_path)
    (tmp_path / "figures.npz").write_bytes(content)
    (tmp_path / "result.json").write_text(json.dumps({"name": "lwr"}))
    with pytest.raises(ValueError, match="damaged"):
        studies.load_result(tmp_path)
