"""Fields and cell volumes of mesh files, which pyvista reads: VTK, VTU, EnSight, Exodus, CGNS, OpenFOAM and others.

    python mesh_files.py NAME step_*.vtu
    python mesh_files.py NAME case.foam

NAME is a field with one value per cell. An OpenFOAM case needs an empty file case.foam in its folder. The program
writes fields.npy and volumes.npy for `randsmap fit`.
"""

import re
import sys

import numpy as np
import pyvista


def read_steps(paths, name):
    """Values of a cell field (n_steps, n_cells), and the volumes of the cells (n_cells,), in the plane their areas."""
    fields = []
    for mesh in meshes(paths):
        if name not in mesh.cell_data:
            raise ValueError(f"no field {name} has one value per cell, only {', '.join(mesh.cell_data.keys())}")
        fields.append(np.array(mesh.cell_data[name]))
    sizes = mesh.compute_cell_sizes(length=False)
    return np.array(fields), np.array(sizes["Area"] + sizes["Volume"])


def meshes(paths):
    """The meshes of the files, in the order of the numbers in their names, at each time that a file has."""
    for path in sorted(paths, key=lambda path: [float(number) for number in re.findall(r"\d+\.?\d*", path)]):
        reader = pyvista.get_reader(path)
        for time in getattr(reader, "time_values", [None]):
            if time is not None:
                reader.set_active_time_value(time)
            mesh = reader.read()
            if isinstance(mesh, pyvista.MultiBlock):
                mesh = mesh["internalMesh"] if "internalMesh" in mesh.keys() else mesh.combine()
            yield mesh


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    fields, volumes = read_steps(sys.argv[2:], sys.argv[1])
    np.save("fields.npy", fields)
    np.save("volumes.npy", volumes)
