"""The order of samples."""

from ... import _C

_functions = _C.functions


class Sampler:
    """Numbers of samples: write __iter__."""

    def __init__(self, data_source=None):
        pass

    def __class_getitem__(cls, kind):
        return cls  # Sampler[int]

    def __iter__(self):
        raise NotImplementedError


class SequentialSampler(Sampler):
    """0, 1, 2, ..."""

    def __init__(self, data_source):
        self.data_source = data_source

    def __iter__(self):
        return iter(range(len(self.data_source)))

    def __len__(self):
        return len(self.data_source)


class RandomSampler(Sampler):
    """All in random order, or draws with replacement."""

    def __init__(self, data_source, replacement=False, num_samples=None, generator=None):
        self.data_source, self.replacement, self._num_samples, self.generator = data_source, replacement, num_samples, generator
        if self.num_samples <= 0:
            raise ValueError(f"num_samples should be a positive integer value, but got num_samples={self.num_samples}")

    @property
    def num_samples(self):
        """How many are drawn."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self):
        n, left = len(self.data_source), self.num_samples
        if self.replacement:
            yield from _C.ops._randint(0, n, (left,), generator=self.generator).tolist()
            return
        while left > 0:
            order = _functions.randperm(n, generator=self.generator).tolist()
            yield from order[:left]
            left -= n

    def __len__(self):
        return self.num_samples


class SubsetRandomSampler(Sampler):
    """These numbers in random order."""

    def __init__(self, indices, generator=None):
        self.indices, self.generator = indices, generator

    def __iter__(self):
        for i in _functions.randperm(len(self.indices), generator=self.generator).tolist():
            yield self.indices[i]

    def __len__(self):
        return len(self.indices)


class WeightedRandomSampler(Sampler):
    """Draws by weight."""

    def __init__(self, weights, num_samples, replacement=True, generator=None):
        self.weights, self.num_samples = _functions.as_tensor(weights, dtype=_C.float64), num_samples
        self.replacement, self.generator = replacement, generator

    def __iter__(self):
        yield from _functions.multinomial(self.weights, self.num_samples, self.replacement, generator=self.generator).tolist()

    def __len__(self):
        return self.num_samples


class BatchSampler(Sampler):
    """Lists of a sampler's numbers."""

    def __init__(self, sampler, batch_size, drop_last):
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self):
        batch = []
        for index in self.sampler:
            batch.append(index)
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if batch and not self.drop_last:
            yield batch

    def __len__(self):
        full, rest = divmod(len(self.sampler), self.batch_size)
        return full if self.drop_last or not rest else full + 1


class DistributedSampler(Sampler):
    """The samples of one of several processes; set_epoch() gives each epoch an order of its own."""

    def __init__(self, dataset, num_replicas=None, rank=None, shuffle=True, seed=0, drop_last=False):
        if num_replicas is None or rank is None:
            raise RuntimeError("DistributedSampler: num_replicas and rank must be given")
        if not 0 <= rank < num_replicas:
            raise ValueError(f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]")
        self.dataset, self.num_replicas, self.rank, self.epoch = dataset, num_replicas, rank, 0
        self.shuffle, self.seed, self.drop_last = shuffle, seed, drop_last
        n = len(dataset)
        self.num_samples = n // num_replicas if drop_last and n % num_replicas else -(-n // num_replicas)
        self.total_size = self.num_samples * num_replicas

    def __iter__(self):
        n = len(self.dataset)
        order = list(range(n))
        if self.shuffle:
            order = _functions.randperm(n, generator=_C.Generator().manual_seed(self.seed + self.epoch)).tolist()
        if self.drop_last:
            order = order[: self.total_size]
        else:
            order = (order * -(-self.total_size // n))[: self.total_size]
        return iter(order[self.rank : self.total_size : self.num_replicas])

    def __len__(self):
        return self.num_samples

    def set_epoch(self, epoch):
        """The epoch that begins."""
        self.epoch = epoch
