import csv

import numpy as np
import pytest

import randsmap
from randsmap import studies
from randsmap.studies import _runner, _table

ERRORS = ("rel_l2", "rel_linf", "conservation")


def small_data(random_state, out, progress):
    centre = np.random.RandomState(random_state).uniform(0.3, 0.7, 90)
    F = np.exp(-(((np.linspace(0, 1, 30) - centre[:, None]) / 0.1) ** 2))
    np.save(out, F / F.sum(axis=1, keepdims=True))


@pytest.fixture
def study():
    grid = tuple(float(v) for v in np.linspace(1, 20, 10))
    sigmoid = randsmap.SigmoidFeatures()
    return studies.Study(
        dataset="lwr", make_data=small_data, n_train=40, n_validation=20, n_test=30,
        encoder=randsmap.DiffusionMaps(n_components=1),
        cases=(studies.DecoderCase("RANDSMAP-Sig", randsmap.RANDSMAPDecoder(sigmoid),
                                   "features__slope", grid),
               studies.DecoderCase("RFNN-Sig", randsmap.RFNNDecoder(sigmoid),
                                   "features__slope", grid)),
    )


def run(study, out, **kwargs):
    return studies.run_study(study, out=out, progress=False, **kwargs)


def errors(rows):
    return [{k: v for k, v in row.items() if not k.startswith("seconds")} for row in rows]


def test_rows(study, tmp_path):
    rows = run(study, tmp_path, runs=2)
    assert [(r["split"], r["decoder"], r["features_per_sample"]) for r in rows] == [
        (split, decoder, fraction) for split in ("train", "test")
        for decoder in ("RANDSMAP-Sig", "RFNN-Sig") for fraction in (1.0, 0.5, 0.25)]
    for row in rows:
        for quantity in (*ERRORS, "seconds"):
            low, median, high = (row[f"{quantity}_{name}"] for name in ("p05", "median", "p95"))
            assert 0 <= low <= median <= high
        if row["decoder"] == "RANDSMAP-Sig":
            assert row["conservation_p95"] < 1e-14
        else:
            assert row["conservation_median"] > 1e-12


def test_conservative_and_plain_decoder_share_draws(study, tmp_path):
    rows = run(study, tmp_path, runs=1, quick=True)
    exact, plain = (r for r in rows if r["split"] == "test")
    assert exact["hyperparameter"] == plain["hyperparameter"]
    assert exact["rel_l2_median"] == pytest.approx(plain["rel_l2_median"], rel=1e-2)
    assert exact["rel_l2_median"] <= plain["rel_l2_median"]  # an orthogonal projection cannot hurt


def test_same_seed_same_errors_other_seed_others(study, tmp_path):
    first = errors(run(study, tmp_path / "a", quick=True))
    assert errors(run(study, tmp_path / "b", quick=True)) == first
    assert errors(run(study, tmp_path / "c", quick=True, seed=1)) != first


def test_interrupted_study_goes_on(study, tmp_path, monkeypatch):
    whole = errors(run(study, tmp_path / "whole", quick=True, runs=3))
    made = []
    real = _runner._run

    def interrupted(*args):
        if len(made) == 4:
            raise KeyboardInterrupt
        made.append(args)
        return real(*args)

    monkeypatch.setattr(_runner, "_run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(study, tmp_path / "cut", quick=True, runs=3)
    made.clear()
    monkeypatch.setattr(_runner, "_run", lambda *args: made.append(args) or real(*args))
    assert errors(run(study, tmp_path / "cut", quick=True, runs=3)) == whole
    assert len(made) == 2  # of six runs, four were on disk


def test_damaged_piece_is_made_again(study, tmp_path):
    whole = errors(run(study, tmp_path, quick=True))
    for left in (lambda text: text[:20], lambda text: "null"):
        for piece in (tmp_path / "pieces").iterdir():
            piece.write_text(left(piece.read_text()))
        assert errors(run(study, tmp_path, quick=True)) == whole


def test_more_runs_keep_the_ones_done(study, tmp_path):
    run(study, tmp_path, quick=True, runs=1)
    before = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "pieces").iterdir()}
    run(study, tmp_path, quick=True, runs=2)
    after = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "pieces").iterdir()}
    assert len(after) > len(before) and all(after[name] == t for name, t in before.items())


def test_another_configuration_is_refused(study, tmp_path):
    run(study, tmp_path, quick=True, runs=1)
    with pytest.raises(ValueError, match=r"holds another configuration \(different: seed\)"):
        run(study, tmp_path, quick=True, runs=1, seed=3)
    for damaged in ("{", "[]"):
        (tmp_path / "config.json").write_text(damaged)
        with pytest.raises(ValueError, match="damaged"):
            run(study, tmp_path, quick=True, runs=1)
    (tmp_path / "config.json").unlink()
    with pytest.raises(ValueError, match="no config.json"):
        run(study, tmp_path, quick=True, runs=1)


@pytest.mark.parametrize("bad", [{"runs": 0}, {"seed": -1}, {"runs": 2.5}])
def test_bad_arguments_write_nothing(study, tmp_path, bad):
    with pytest.raises((TypeError, ValueError)):
        run(study, tmp_path / "out", **bad)
    assert not (tmp_path / "out").exists()


def test_csv_has_the_columns_and_keeps_every_digit(study, tmp_path):
    rows = run(study, tmp_path, quick=True)
    studies.write_csv(rows, tmp_path / "table.csv")
    with open(tmp_path / "table.csv", newline="") as file:
        read = list(csv.DictReader(file))
    assert tuple(read[0]) == _table.COLUMNS
    for row, text in zip(rows, read):
        for name, value in row.items():
            if isinstance(value, float):
                assert float(text[name]) == value
    text = studies.format_table(rows)
    assert sum("RFNN-Sig" in line for line in text.splitlines()) == 2
    assert sum("RANDSMAP-Sig" in line for line in text.splitlines()) == 2


def test_paper_columns_are_the_papers_numbers():
    row = {"dataset": "lwr", "split": "test", "decoder": "RANDSMAP-Sig", "features_per_sample": 1.0,
           "n_train": 2000}
    (joined,) = _table.with_paper([row])
    # App. G, test set table: 1.586 (1.583--1.588) x 10^-1, 4.100 x 10^-8, 3.179 s
    assert joined["paper_rel_l2_median"] == 0.1586
    assert joined["paper_rel_l2_p05"] == 0.1583 and joined["paper_rel_l2_p95"] == 0.1588
    assert joined["paper_conservation_median"] == 4.1e-8
    assert joined["paper_seconds_median"] == 3.179
    (missing,) = _table.with_paper([{**row, "n_train": 7}])
    assert missing["paper_rel_l2_median"] is None


def test_lwr_study_is_the_papers():
    study = studies.lwr_study()
    assert (study.n_train, study.n_validation, study.n_test) == (2000, 2000, 8000)
    assert study.encoder.alpha == 0.0 and study.encoder.n_components == 2
    ranges = {case.label: (min(case.grid), max(case.grid), len(case.grid)) for case in study.cases}
    assert ranges == {"RANDSMAP-RFF": (0.1, 1.0, 10), "RANDSMAP-MS-RFF": (2.0, 15.0, 10),
                      "RANDSMAP-Sig": (1.0, 20.0, 10), "RFNN-Sig": (1.0, 20.0, 10)}
