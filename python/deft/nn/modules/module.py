"""Module: parameters, buffers and children by attribute, state, hooks, train and eval."""

import itertools
from collections import OrderedDict, namedtuple

from ... import _C
from ..._C import Tensor
from ..parameter import Buffer, Parameter


class _IncompatibleKeys(namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    def __repr__(self):
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return super().__repr__()


class RemovableHandle:
    """Takes a hook off again."""

    _numbers = itertools.count()

    def __init__(self, hooks, module=None):
        self.hooks, self.id = hooks, next(RemovableHandle._numbers)

    def remove(self):
        self.hooks.pop(self.id, None)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.remove()


def _add_indent(text, spaces):
    first, *rest = text.split("\n")
    return "\n".join([first] + [" " * spaces + line for line in rest])


class _Attributes(dict):
    """Parameters of a module that has had one replaced by a plain attribute: layers find that as well."""

    def __init__(self, values, owner):
        super().__init__(values)
        self.owner = owner

    def __missing__(self, name):
        return getattr(self.owner, name)


class Module:
    """The base of all layers and models. Assign parameters and other modules to attributes; write forward()."""

    training: bool
    call_super_init = False
    _version = 1

    def __init__(self, *args, **kwargs):
        if args or kwargs:
            given = f"{len(args)} positional" if args else f"keyword '{next(iter(kwargs))}'"
            raise TypeError(f"{type(self).__name__}.__init__() takes no arguments but {given} given")
        own = self.__dict__
        own["training"] = True
        own["_parameters"], own["_buffers"], own["_modules"] = {}, {}, {}
        own["_non_persistent_buffers_set"] = set()
        own["_hooked"] = False  # one check per call while there are no hooks

    def forward(self, *args, **kwargs):
        """What the module computes; every module defines it."""
        raise NotImplementedError(f"Module [{type(self).__name__}] is missing the required \"forward\" function")

    def __call__(self, *args, **kwargs):
        if self._hooked:
            return self._call_hooked(args, kwargs)
        return self.forward(*args, **kwargs)

    # --- Attributes
    def __getattr__(self, name):
        own = self.__dict__
        for kind in ("_parameters", "_buffers", "_modules"):
            found = own.get(kind)
            if found is not None and name in found:
                return found[name]
        if "_parameters" not in own and not name.startswith("__"):
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}': call super().__init__() first")
        near = "" if name.startswith("__") else _C._nearest_name(name, [n for n in dir(self) if not n.startswith("_")])
        hint = f"; the nearest is '{near}'" if near else ""
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'{hint}")

    def __setattr__(self, name, value):
        own = self.__dict__
        if isinstance(value, Parameter):
            self._remove_from(name, "_buffers", "_modules")
            self.register_parameter(name, value)
        elif isinstance(value, Module):
            if "_modules" not in own:
                raise AttributeError("cannot assign module before Module.__init__() call")
            self._remove_from(name, "_parameters", "_buffers")
            own["_modules"][name] = value
        elif isinstance(value, Buffer):
            self._remove_from(name, "_parameters", "_modules")
            self.register_buffer(name, value, getattr(value, "persistent", True))
        else:
            self._set_plain(name, value)

    def _set_plain(self, name, value):
        own = self.__dict__
        for kind in ("_parameters", "_modules", "_buffers"):
            group = own.get(kind)
            if group is None or name not in group:
                continue
            if value is not None and not (kind == "_buffers" and isinstance(value, Tensor)):
                wanted = {"_parameters": "Parameter", "_modules": "Module", "_buffers": "Tensor"}[kind]
                raise TypeError(f"cannot assign '{type(value).__name__}' as '{name}' (deft.nn.{wanted} or None expected)")
            group[name] = value
            return
        object.__setattr__(self, name, value)

    def _remove_from(self, name, *kinds):
        own = self.__dict__
        own.pop(name, None)
        for kind in kinds:
            group = own.get(kind)
            if group is not None and name in group:
                del group[name]
                own["_non_persistent_buffers_set"].discard(name)

    def __delattr__(self, name):
        for kind in ("_parameters", "_buffers", "_modules"):
            if name in self.__dict__.get(kind, ()):
                del self.__dict__[kind][name]
                self._non_persistent_buffers_set.discard(name)
                if kind == "_parameters" and type(self._parameters) is dict:
                    self.__dict__["_parameters"] = _Attributes(self._parameters, self)
                return
        object.__delattr__(self, name)

    def __dir__(self):
        names = set(dir(type(self))) | set(self.__dict__)
        for kind in ("_parameters", "_buffers", "_modules"):
            names.update(self.__dict__.get(kind, ()))
        return sorted(n for n in names if not n[:1].isdigit())

    def _check_name(self, name, kind):
        if "_parameters" not in self.__dict__:
            raise AttributeError(f"cannot assign {kind} before Module.__init__() call")
        if not isinstance(name, str):
            raise TypeError(f"{kind} name should be a string. Got {type(name).__name__}")
        if "." in name:
            raise KeyError(f'{kind} name can\'t contain "."')
        if name == "":
            raise KeyError(f'{kind} name can\'t be empty string ""')

    def register_parameter(self, name, param):
        """Adds a parameter under a name."""
        self._check_name(name, "parameter")
        if hasattr(self, name) and name not in self._parameters:
            raise KeyError(f"attribute '{name}' already exists")
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(f"cannot assign '{type(param).__name__}' object to parameter '{name}' (deft.nn.Parameter or None required)")
        if param is not None and param.grad_fn is not None:
            raise ValueError(f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be created explicitly.")
        self._parameters[name] = param

    def register_buffer(self, name, tensor, persistent=True):
        """Adds a tensor that is part of the state but not trained."""
        self._check_name(name, "buffer")
        if hasattr(self, name) and name not in self._buffers:
            raise KeyError(f"attribute '{name}' already exists")
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(f"cannot assign '{type(tensor).__name__}' object to buffer '{name}' (deft Tensor or None required)")
        self._buffers[name] = tensor
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def add_module(self, name, module):
        """Adds a child under a name."""
        self._check_name(name, "module")
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"{type(module).__name__} is not a Module subclass")
        if hasattr(self, name) and name not in self._modules:
            raise KeyError(f"attribute '{name}' already exists")
        self._modules[name] = module

    register_module = add_module

    def get_submodule(self, target):
        """The module of this dotted name."""
        module = self
        for part in target.split(".") if target else ():
            module = getattr(module, part, None)
            if not isinstance(module, Module):
                raise AttributeError(f"{type(self).__name__} has no submodule '{target}'")
        return module

    def get_parameter(self, target):
        """The parameter of this dotted name."""
        path, _, name = target.rpartition(".")
        found = self.get_submodule(path)._parameters.get(name)
        if found is None:
            raise AttributeError(f"{type(self).__name__} has no parameter '{target}'")
        return found

    def get_buffer(self, target):
        """The buffer of this dotted name."""
        path, _, name = target.rpartition(".")
        found = self.get_submodule(path)._buffers.get(name)
        if found is None:
            raise AttributeError(f"{type(self).__name__} has no buffer '{target}'")
        return found

    # --- Walking
    def named_modules(self, memo=None, prefix="", remove_duplicate=True):
        """This module and all below it, with dotted names."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, child in self._modules.items():
            if child is not None:
                yield from child.named_modules(memo, f"{prefix}.{name}" if prefix else name, remove_duplicate)

    def modules(self):
        """This module and all below it."""
        for _, module in self.named_modules():
            yield module

    def named_children(self):
        """The children with their names, each once."""
        seen = set()
        for name, child in self._modules.items():
            if child is not None and child not in seen:
                seen.add(child)
                yield name, child

    def children(self):
        """The children, each once."""
        for _, child in self.named_children():
            yield child

    def _named_members(self, group_of, prefix, recurse, remove_duplicate):
        seen = set()
        modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for path, module in modules:
            for name, value in group_of(module).items():
                if value is None or id(value) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(value))
                yield (f"{path}.{name}" if path else name), value

    def named_parameters(self, prefix="", recurse=True, remove_duplicate=True):
        """All parameters with dotted names, each once."""
        return self._named_members(lambda m: m._parameters, prefix, recurse, remove_duplicate)

    def parameters(self, recurse=True):
        """All parameters, each once."""
        for _, parameter in self.named_parameters(recurse=recurse):
            yield parameter

    def named_buffers(self, prefix="", recurse=True, remove_duplicate=True):
        """All buffers with dotted names, each once."""
        return self._named_members(lambda m: m._buffers, prefix, recurse, remove_duplicate)

    def buffers(self, recurse=True):
        """All buffers, each once."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    def apply(self, fn):
        """Calls fn(module) for all modules, children first."""
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    # --- Mode, place and type
    def train(self, mode=True):
        """Training behaviour of dropout, batch norm and the like, here and below."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for child in self.children():
            child.train(mode)
        return self

    def eval(self):
        """Inference behaviour, here and below."""
        return self.train(False)

    def requires_grad_(self, requires_grad=True):
        """Whether parameters are trained."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none=True):
        """Forgets the gradients of all parameters."""
        _C._zero_grad(list(self.parameters()), set_to_none)

    def _apply(self, fn):
        with _C.no_grad():
            for module in self.modules():
                for parameter in module._parameters.values():
                    if parameter is not None:
                        parameter.data = fn(parameter.data)
                for name, buffer in module._buffers.items():
                    if buffer is not None:
                        module._buffers[name] = fn(buffer)
        return self

    def to(self, *args, **kwargs):
        """Moves parameters and buffers to a device, or floating ones to a type."""
        like = _C.functions.empty(0).to(*args, **kwargs)
        moves = any(isinstance(a, (str, _C.device, Tensor)) for a in args) or kwargs.get("device") is not None
        types = any(isinstance(a, (_C.dtype, Tensor)) for a in args) or kwargs.get("dtype") is not None
        if types and not like.is_floating_point():
            raise TypeError(f"nn.Module.to only accepts floating point dtypes, but got desired dtype={like.dtype}")

        def convert(t):
            result = t.to(like.device) if moves else t
            return result.to(like.dtype) if types and t.is_floating_point() else result

        return self._apply(convert)

    def type(self, dst_type):
        """All parameters and buffers in this type."""
        return self._apply(lambda t: t.to(dst_type))

    def float(self):
        """Floating parameters and buffers in float32."""
        return self.to(dtype=_C.float32)

    def double(self):
        """Floating parameters and buffers in float64."""
        return self.to(dtype=_C.float64)

    def half(self):
        """Floating parameters and buffers in float16."""
        return self.to(dtype=_C.float16)

    def bfloat16(self):
        """Floating parameters and buffers in bfloat16."""
        return self.to(dtype=_C.bfloat16)

    def cpu(self):
        """Everything in host memory."""
        return self.to("cpu")

    def cuda(self, device=None):
        """Everything on a GPU."""
        return self.to("cuda" if device is None else _C.device("cuda", device) if isinstance(device, int) else device)

    def to_empty(self, *, device, recurse=True):
        """Everything on a device, with values that are anything."""
        return self._apply(lambda t: _C.functions.empty_like(t, device=device))

    def share_memory(self):
        """Parameters and buffers in memory that child processes share."""
        return self._apply(lambda t: t.share_memory_())

    # --- State
    def state_dict(self, *, destination=None, prefix="", keep_vars=False):
        """Parameters and persistent buffers by dotted name, sharing the module's memory."""
        destination = OrderedDict() if destination is None else destination
        for name, parameter in self._parameters.items():
            if parameter is not None:
                destination[prefix + name] = parameter if keep_vars else parameter.detach()
        for name, buffer in self._buffers.items():
            if buffer is not None and name not in self._non_persistent_buffers_set:
                destination[prefix + name] = buffer if keep_vars else buffer.detach()
        for name, child in self._modules.items():
            if child is not None:
                child.state_dict(destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for hook in self.__dict__.get("_state_dict_hooks", {}).values():
            hook(self, destination, prefix, {})
        return destination

    def _own_state(self):
        yield from ((n, p) for n, p in self._parameters.items() if p is not None)
        for name, buffer in self._buffers.items():
            if buffer is not None and name not in self._non_persistent_buffers_set:
                yield name, buffer

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs):
        for name, target in self._own_state():
            key = prefix + name
            if key not in state_dict:
                missing_keys.append(key)
                continue
            value = state_dict[key]
            if not isinstance(value, Tensor):
                error_msgs.append(f'While copying the parameter named "{key}", expected deft.Tensor but received {type(value).__name__}')
            elif tuple(value.shape) != tuple(target.shape):
                error_msgs.append(
                    f"size mismatch for {key}: copying a param with shape {value.shape} from checkpoint, "
                    f"the shape in current model is {target.shape}.")
            else:
                self._take(name, target, value)

    def _take(self, name, target, value):
        if not self.__dict__.get("_assign"):
            with _C.no_grad():
                target.copy_(value.to(target.device))
        elif isinstance(target, Parameter):
            self._parameters[name] = value if isinstance(value, Parameter) else Parameter(value, target.requires_grad)
        else:
            self._buffers[name] = value

    def load_state_dict(self, state_dict, strict=True, assign=False):
        """Copies a state in. With strict, anything missing or left over is an error."""
        if not hasattr(state_dict, "keys"):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        missing, errors, known = [], [], set()
        for path, module in self.named_modules(remove_duplicate=False):
            module.__dict__["_assign"] = assign
            prefix = path + "." if path else ""
            module._load_from_state_dict(state_dict, prefix, {}, strict, missing, [], errors)
            del module.__dict__["_assign"]
            known.update(prefix + name for name, _ in module._own_state())
        unexpected = [key for key in state_dict if key not in known]
        if strict:
            for title, keys in (("Unexpected", unexpected), ("Missing", missing)):
                if keys:
                    errors.insert(0, f"{title} key(s) in state_dict: " + ", ".join(f'"{k}"' for k in keys) + ". ")
        if errors:
            raise RuntimeError(f"Error(s) in loading state_dict for {type(self).__name__}:\n\t" + "\n\t".join(errors))
        return _IncompatibleKeys(missing, unexpected)

    # --- Hooks
    def _hooks(self, kind):
        self.__dict__["_hooked"] = True
        return self.__dict__.setdefault(kind, OrderedDict())

    def _register(self, kind, entry, prepend=False):
        hooks = self._hooks(kind)
        handle = RemovableHandle(hooks)
        hooks[handle.id] = entry
        if prepend:
            hooks.move_to_end(handle.id, last=False)
        return handle

    def register_forward_pre_hook(self, hook, *, prepend=False, with_kwargs=False):
        """Calls hook(module, args) before forward(); what it returns replaces the arguments."""
        return self._register("_forward_pre_hooks", (hook, with_kwargs), prepend)

    def register_forward_hook(self, hook, *, prepend=False, with_kwargs=False, always_call=False):
        """Calls hook(module, args, output) after forward(); what it returns replaces the output."""
        return self._register("_forward_hooks", (hook, with_kwargs), prepend)

    def register_full_backward_hook(self, hook, prepend=False):
        """Calls hook(module, grad_input, grad_output) once the gradients of the inputs are known."""
        return self._register("_backward_hooks", hook, prepend)

    def register_full_backward_pre_hook(self, hook, prepend=False):
        """Calls hook(module, grad_output) before the module's backward pass."""
        return self._register("_backward_pre_hooks", hook, prepend)

    def register_state_dict_post_hook(self, hook):
        """Calls hook(module, state_dict, prefix, local_metadata) after state_dict()."""
        hooks = self.__dict__.setdefault("_state_dict_hooks", OrderedDict())
        handle = RemovableHandle(hooks)
        hooks[handle.id] = hook
        return handle

    def _call_hooked(self, args, kwargs):
        own = self.__dict__
        for hook, with_kwargs in tuple(own.get("_forward_pre_hooks", {}).values()):
            result = hook(self, args, kwargs) if with_kwargs else hook(self, args)
            if result is None:
                continue
            if with_kwargs:
                args, kwargs = result
            else:
                args = result if isinstance(result, tuple) else (result,)
        backward = None
        if own.get("_backward_hooks") or own.get("_backward_pre_hooks"):
            from ._backward_hooks import BackwardHooks

            backward = BackwardHooks(self, tuple(own.get("_backward_hooks", {}).values()),
                                     tuple(own.get("_backward_pre_hooks", {}).values()))
            args = backward.watch_inputs(args)
        result = self.forward(*args, **kwargs)
        for hook, with_kwargs in tuple(own.get("_forward_hooks", {}).values()):
            changed = hook(self, args, kwargs, result) if with_kwargs else hook(self, args, result)
            if changed is not None:
                result = changed
        return backward.watch_outputs(result) if backward else result

    # --- Text
    def extra_repr(self):
        """What repr() says of the module beside its children."""
        return ""

    def _get_name(self):
        return type(self).__name__

    def __repr__(self):
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        children = [f"({name}): " + _add_indent(repr(child), 2) for name, child in self._modules.items()]
        if lines and not children and len(lines) == 1:
            return f"{self._get_name()}({lines[0]})"
        if not lines and not children:
            return f"{self._get_name()}()"
        return f"{self._get_name()}(\n  " + "\n  ".join(lines + children) + "\n)"

    def compile(self, *args, **kwargs):
        """Calls of this module run as plans from now on."""
        from ..._compile import compile as compile_

        self.__dict__["forward"] = compile_(self.forward, *args, module=self, **kwargs)
        return self

    def __setstate__(self, state):
        self.__dict__.update(state)
