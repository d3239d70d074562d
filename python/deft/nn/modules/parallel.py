"""What programs for several GPUs name: in one process these are what they are on one device."""

from . import layers
from .module import Module


class DataParallel(Module):
    """Runs a module on one device; over several, one process per device is the way."""

    def __init__(self, module, device_ids=None, output_device=None, dim=0):
        super().__init__()
        self.module, self.dim, self.device_ids = module, dim, list(device_ids or ())
        if len(self.device_ids) > 1:
            raise NotImplementedError(f"DataParallel: found {len(self.device_ids)} devices, expected one; run one process per device")

    def forward(self, *inputs, **kwargs):
        return self.module(*inputs, **kwargs)


class SyncBatchNorm(layers._BatchNorm):
    """Batch norm over all processes of a group: in one process, over the batch."""

    ranks = (2, 3, 4, 5)

    def __init__(self, num_features, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True, process_group=None, device=None,
                 dtype=None, *, bias=True):
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)
        if process_group is not None:
            raise NotImplementedError("SyncBatchNorm: process groups are not supported; leave process_group out")

    @classmethod
    def convert_sync_batchnorm(cls, module, process_group=None):
        """The same module with every batch norm replaced; weights and statistics are shared."""
        result = module
        if isinstance(module, layers._BatchNorm) and not isinstance(module, cls):
            result = cls(module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats, process_group,
                         bias=module.bias is not None)
            result._parameters.update(module._parameters)
            result._buffers.update(module._buffers)
            result.training = module.training
        for name, child in module.named_children():
            setattr(result, name, cls.convert_sync_batchnorm(child, process_group))
        return result
