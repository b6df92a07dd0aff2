from randsmap import datasets as datasets
from randsmap import decoders as decoders
from randsmap import encoders as encoders
from randsmap import features as features
from randsmap import invariants as invariants
from randsmap import metrics as metrics
from randsmap import model as model
from randsmap import persistence as persistence
from randsmap import plotting as plotting
from randsmap import studies as studies
from randsmap import tuning as tuning
from randsmap._parallel import get_num_threads as get_num_threads
from randsmap._parallel import set_num_threads as set_num_threads
from randsmap._progress import show_progress as show_progress
from randsmap.datasets import HughesSolver as HughesSolver
from randsmap.datasets import LWRSolver as LWRSolver
from randsmap.datasets import solve_eikonal as solve_eikonal
from randsmap.decoders import BlendedDecoder as BlendedDecoder
from randsmap.decoders import ConservativeRegressor as ConservativeRegressor
from randsmap.decoders import DoubleDiffusionMapsDecoder as DoubleDiffusionMapsDecoder
from randsmap.decoders import KernelDecoder as KernelDecoder
from randsmap.decoders import KNNDecoder as KNNDecoder
from randsmap.decoders import RANDSMAPDecoder as RANDSMAPDecoder
from randsmap.decoders import RFNNDecoder as RFNNDecoder
from randsmap.encoders import POD as POD
from randsmap.encoders import DiffusionMaps as DiffusionMaps
from randsmap.features import *  # noqa: F403 - its `__all__`: a new map is exported by being in it
from randsmap.invariants import project_bounds as project_bounds
from randsmap.model import ManifoldModel as ManifoldModel
from randsmap.model import ParametricModel as ParametricModel
from randsmap.model import ShiftRegistration as ShiftRegistration
from randsmap.persistence import load as load
from randsmap.tuning import AutoDecoder as AutoDecoder
from randsmap.tuning import autotune as autotune
from randsmap.tuning import leave_one_out as leave_one_out
from randsmap.tuning import tune as tune

__version__: str
