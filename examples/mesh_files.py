"""Fields and cell volumes of mesh files, one per time step: python mesh_files.py NAME step_*.vtu, with meshio."""

import sys

import meshio
import numpy as np


def read_steps(paths, name):
    """Values of a cell field (n_steps, n_cells), and the volumes of the cells (n_cells,)."""
    meshes = [meshio.read(path) for path in paths]
    fields = [np.concatenate(mesh.cell_data[name]) for mesh in meshes]
    return np.array(fields), volumes(meshes[0])


def volumes(mesh):
    """Areas or volumes of the cells: the sum over the triangles or tetrahedra that a cell is cut into."""
    simplices = {
        "triangle": [[0, 1, 2]],
        "quad": [[0, 1, 2], [0, 2, 3]],
        "tetra": [[0, 1, 2, 3]],
        "hexahedron": [[0, 1, 2, 5], [0, 2, 3, 7], [0, 5, 7, 4], [2, 7, 5, 6], [0, 2, 7, 5]],
    }
    found = []
    for block in mesh.cells:
        size = 0.0
        for corners in simplices[block.type]:
            points = mesh.points[block.data[:, corners]]
            sides = points[:, 1:] - points[:, :1]
            if len(corners) == 3:
                size = size + np.linalg.norm(np.cross(sides[:, 0], sides[:, 1]), axis=1) / 2
            else:
                size = size + abs(np.linalg.det(sides)) / 6
        found.append(size)
    return np.concatenate(found)


if __name__ == "__main__":
    fields, weights = read_steps(sys.argv[2:], sys.argv[1])
    np.save("fields.npy", fields)
    np.save("volumes.npy", weights)
