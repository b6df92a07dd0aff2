"""Builds and runs a time loop in every host against the installed package, and compares the fields bit by bit.

python examples/hosts/run.py               # hosts whose compiler or package is missing are skipped
python examples/hosts/run.py c fortran     # these, which must be there
python examples/hosts/run.py all           # every one, which must be there
"""

import argparse
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import numpy as np

import randsmap
from randsmap.decoders import library_path

HERE = Path(__file__).resolve().parent


class Missing(Exception):
    """What a host needs and is not there."""


def frozen_decoder(path):
    """A decoder with invariants and bounds of bumps on two latent coordinates, frozen into the file `path`."""
    rng, x = np.random.default_rng(0), np.linspace(0, 1, 400)
    latents = rng.uniform(size=(300, 2))
    fields = np.maximum(0, 1 - ((x - 0.2 - 0.6 * latents[:, :1]) / (0.1 + 0.1 * latents[:, 1:])) ** 2)
    fields /= fields.sum(axis=1, keepdims=True)
    decoder = randsmap.RANDSMAPDecoder(
        randsmap.SigmoidFeatures(10.0, n_features=200), bounds="nonnegative", random_state=0
    )
    decoder.fit(latents, fields).freeze().save(path)


def last_field(path):
    """The field of the time loop's end, in Python."""
    decoder = randsmap.FrozenDecoder.load(path)
    z, field = np.full((1, decoder.n_components), 0.25), np.empty((1, decoder.n_cells))
    for _ in range(256):
        z += 1 / 1024  # the reduced model's step
        decoder.predict(z, out=field)
    return [f"{bits:016x}" for bits in field[0].view(np.uint64)]


def config(*options):
    """Flags that ``randsmap config`` prints."""
    command = [sys.executable, "-P", "-m", "randsmap", "config", *options]
    return shlex.split(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def compiler(variable, *names):
    """The first compiler of that environment variable, or of these names, that is there."""
    given = shlex.split(os.environ.get(variable, ""))
    if given:
        return given
    for name in names:
        if shutil.which(name):
            return [name]
    raise Missing(f"no compiler: {' or '.join(names)}")


def package(name):
    if importlib.util.find_spec(name) is None:
        raise Missing(f"not installed: {name}")


def build(*command):
    subprocess.run([str(part) for part in command], check=True)


# -- Hosts: a function of a folder for what is built, which returns the command that takes the decoder ---------------


def c(folder):
    flags = "-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror"
    build(
        *compiler("CC", "cc", "gcc", "clang"),
        *flags,
        HERE / "loop.c",
        *config("--cflags", "--libs"),
        "-o",
        folder / "c",
    )
    return [folder / "c"]


def cpp(folder):
    flags = "-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror"
    build(
        *compiler("CXX", "c++", "g++", "clang++"),
        *flags,
        HERE / "loop.cpp",
        *config("--cflags", "--libs"),
        "-o",
        folder / "cpp",
    )
    return [folder / "cpp"]


def fortran(folder):
    module = Path(randsmap.get_include()) / "randsmap.f90"
    build(
        *compiler("FC", "gfortran", "flang"),
        *("-std=f2008", f"-J{folder}"),
        *(module, HERE / "loop.f90"),
        *config("--libs"),
        *("-o", folder / "fortran"),
    )
    return [folder / "fortran"]


def cython(folder):
    package("Cython")
    source, module = folder / "loop_cython.c", folder / f"loop_cython{sysconfig.get_config_var('EXT_SUFFIX')}"
    build(sys.executable, "-P", "-m", "cython", HERE / "loop_cython.pyx", "-o", source)
    build(
        *compiler("CC", "cc", "gcc", "clang"),
        *("-shared", "-fPIC", f"-I{sysconfig.get_path('include')}", source),
        *config("--cflags"),
        *("-o", module),
    )
    program = (
        f"import sys; sys.path.insert(0, {str(folder)!r})\n"
        "import numpy as np, loop_cython\n"
        "z, field = np.full(2, 0.25), np.empty(400)\n"
        "loop_cython.Decoder(sys.argv[1]).last_field(z, field, 256)\n"
        "print(*(f'{bits:016x}' for bits in field.view(np.uint64)), sep='\\n')"
    )
    return [sys.executable, "-P", "-c", program]


def through_ctypes(folder):
    # without NumPy and without the package
    return [sys.executable, "-I", "-S", HERE / "loop_ctypes.py"]


def through_numba(folder):
    package("numba")
    return [sys.executable, "-P", HERE / "loop_numba.py"]


def through_jax(folder):
    package("jax")
    return [sys.executable, "-P", HERE / "loop_jax.py"]


HOSTS = {
    "c": c,
    "c++": cpp,
    "fortran": fortran,
    "cython": cython,
    "ctypes": through_ctypes,
    "numba": through_numba,
    "jax": through_jax,
}


def main(names):
    required = bool(names)
    names = list(HOSTS) if not names or names == ["all"] else names
    failed = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        path = folder / "decoder.rsm"
        frozen_decoder(path)
        expected = last_field(path)
        for name in names:
            try:
                command = [*HOSTS[name](folder), path, *([library_path()] if name == "ctypes" else [])]
                done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
                got = done.stdout.lower().split()
                different = sum(a != b for a, b in zip(got, expected)) + abs(len(got) - len(expected))
                if done.returncode:
                    outcome = f"ended with status {done.returncode}\n{done.stderr}"
                elif different:
                    outcome = f"{different} of {len(expected)} cells differ"
                else:
                    print(f"{name}: the same {len(expected)} cells to the last bit")
                    continue
            except Missing as missing:
                if not required:
                    print(f"{name}: skipped, {missing}")
                    continue
                outcome = str(missing)
            except subprocess.CalledProcessError as error:
                outcome = f"does not build: {error}"
            print(f"{name}: FAILED, {outcome}")
            failed.append(name)
    return 1 if failed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hosts", nargs="*", metavar="HOST", help=f"{', '.join(HOSTS)}, or all")
    chosen = parser.parse_args().hosts
    for name in chosen:
        if name not in HOSTS and chosen != ["all"]:
            parser.error(f"no host {name}: there are {', '.join(HOSTS)}")
    sys.exit(main(chosen))
