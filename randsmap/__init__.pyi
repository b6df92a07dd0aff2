from randsmap import datasets as datasets
from randsmap import decoders as decoders
from randsmap import encoders as encoders
from randsmap import features as features
from randsmap import invariants as invariants
from randsmap import metrics as metrics
from randsmap import model as model
from randsmap import plotting as plotting
from randsmap import tuning as tuning
from randsmap._parallel import get_num_threads as get_num_threads
from randsmap._parallel import set_num_threads as set_num_threads
from randsmap.datasets import LWRSolver as LWRSolver
from randsmap.decoders import ConservativeRegressor as ConservativeRegressor
from randsmap.decoders import DoubleDiffusionMapsDecoder as DoubleDiffusionMapsDecoder
from randsmap.decoders import KernelDecoder as KernelDecoder
from randsmap.decoders import KNNDecoder as KNNDecoder
from randsmap.decoders import RANDSMAPDecoder as RANDSMAPDecoder
from randsmap.decoders import RFNNDecoder as RFNNDecoder
from randsmap.encoders import DiffusionMaps as DiffusionMaps
from randsmap.features import FourierFeatures as FourierFeatures
from randsmap.features import MultiscaleFourierFeatures as MultiscaleFourierFeatures
from randsmap.features import SigmoidFeatures as SigmoidFeatures
from randsmap.model import ManifoldModel as ManifoldModel
from randsmap.pod import POD as POD
from randsmap.tuning import tune as tune

__version__: str
