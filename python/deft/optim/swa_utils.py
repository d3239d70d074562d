"""Averages of a model's weights: AveragedModel, with an exponential or a plain mean; update_bn; SWALR."""

import copy
import math

from .. import _C
from ..nn import Module
from .lr_scheduler import LRScheduler


def get_ema_avg_fn(decay=0.999):
    """An exponential mean: decay * average + (1 - decay) * weight."""

    def average(averaged, current, num_averaged):
        return averaged * decay + current * (1 - decay)

    return average


def get_swa_avg_fn():
    """A plain mean."""

    def average(averaged, current, num_averaged):
        return averaged + (current - averaged) / (num_averaged + 1)

    return average


def _of_lists(average):
    def update(averaged, current, num_averaged):
        for a, c in zip(averaged, current):
            a.copy_(average(a, c, num_averaged))

    return update


def get_ema_multi_avg_fn(decay=0.999):
    """get_ema_avg_fn() for lists of tensors."""
    return _of_lists(get_ema_avg_fn(decay))


def get_swa_multi_avg_fn():
    """get_swa_avg_fn() for lists of tensors."""
    return _of_lists(get_swa_avg_fn())


class AveragedModel(Module):
    """A copy of a model that holds the average of its weights."""

    def __init__(self, model, device=None, avg_fn=None, multi_avg_fn=None, use_buffers=False):
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", _C.functions.tensor(0, device=device))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def update_parameters(self, model):
        """Takes the model's weights of now into the average."""
        with _C.no_grad():
            own, other = list(self.module.parameters()), list(model.parameters())
            if self.use_buffers:
                own, other = own + list(self.module.buffers()), other + list(model.buffers())
            count = int(self.n_averaged)
            if count == 0:
                for a, c in zip(own, other):
                    a.copy_(c.detach().to(a.device))
            else:
                floats = [(a, c.detach().to(a.device)) for a, c in zip(own, other) if a.is_floating_point()]
                update = self.multi_avg_fn or _of_lists(self.avg_fn or get_swa_avg_fn())
                update([a for a, _ in floats], [c for _, c in floats], count)
            if not self.use_buffers:
                for a, c in zip(self.module.buffers(), model.buffers()):
                    a.copy_(c.detach().to(a.device))
            self.n_averaged += 1


def update_bn(loader, model, device=None):
    """Computes the running statistics of batch norms anew from data."""
    norms = [m for m in model.modules() if getattr(m, "track_running_stats", False) and hasattr(m, "momentum")]
    if not norms:
        return
    momenta, training = [m.momentum for m in norms], model.training
    for m in norms:
        m.reset_running_stats()
        m.momentum = None
    model.train()
    with _C.no_grad():
        for batch in loader:
            x = batch[0] if isinstance(batch, (list, tuple)) else batch
            model(x if device is None else x.to(device))
    for m, momentum in zip(norms, momenta):
        m.momentum = momentum
    model.train(training)


class SWALR(LRScheduler):
    """Goes to a constant learning rate within some epochs."""

    def __init__(self, optimizer, swa_lr, anneal_epochs=10, anneal_strategy="cos", last_epoch=-1):
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        rates = swa_lr if isinstance(swa_lr, (list, tuple)) else [swa_lr] * len(optimizer.param_groups)
        for group, rate in zip(optimizer.param_groups, rates):
            group["swa_lr"] = rate
        self.anneal_epochs, self.anneal_strategy = anneal_epochs, anneal_strategy
        super().__init__(optimizer, last_epoch)

    def _share(self, x):
        return (1 - math.cos(math.pi * x)) / 2 if self.anneal_strategy == "cos" else x

    def get_lr(self):
        step, n = self.last_epoch, max(self.anneal_epochs, 1)
        before = self._share(max(0, min(1, (step - 1) / n)))
        now = self._share(max(0, min(1, step / n)))
        rates = []
        for group in self.optimizer.param_groups:
            start = group["swa_lr"] if before == 1 else (group["lr"] - before * group["swa_lr"]) / (1 - before)
            rates.append(group["swa_lr"] * now + start * (1 - now))
        return rates
