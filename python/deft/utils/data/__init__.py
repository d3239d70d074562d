"""Datasets, samplers and the DataLoader."""

from .dataset import ChainDataset, ConcatDataset, Dataset, IterableDataset, StackDataset, Subset, TensorDataset, random_split
from .loader import DataLoader, default_collate, default_convert, get_worker_info
from .sampler import BatchSampler, DistributedSampler, RandomSampler, Sampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler


def __getattr__(name):
    from ..._nearest import module_getattr

    return module_getattr(__name__, lambda: globals())(name)
