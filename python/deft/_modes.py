"""What makes decorators of no_grad, enable_grad, set_grad_enabled, inference_mode and autocast."""

import functools


def _around_generator(mode, function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        # The mode holds while the generator runs, not while its caller does.
        generator = function(*args, **kwargs)
        send, value = generator.send, None
        while True:
            try:
                with mode.clone():
                    result = send(value)
            except StopIteration as stop:
                return stop.value
            try:
                value = yield result
                send = generator.send
            except GeneratorExit:
                with mode.clone():
                    generator.close()
                raise
            except BaseException as error:
                send, value = generator.throw, error

    return wrapper


class _Steps:
    """An awaitable that runs each step of a coroutine inside a mode."""

    def __init__(self, mode, coroutine):
        self.mode, self.coroutine = mode, coroutine

    def __await__(self):
        steps = self.coroutine.__await__()
        send, value = steps.send, None
        while True:
            try:
                with self.mode.clone():
                    result = send(value)
            except StopIteration as stop:
                return stop.value
            try:
                value = yield result
                send = steps.send
            except BaseException as error:
                send, value = steps.throw, error


def _around_coroutine(mode, function):
    @functools.wraps(function)
    async def wrapper(*args, **kwargs):
        return await _Steps(mode, function(*args, **kwargs))

    return wrapper


def decorate(mode, function):
    """`function` with the mode on while it runs. Classes have their __init__ decorated, as in torch."""
    import inspect  # only where something is decorated: it takes a tenth of the time of importing deft

    if inspect.isclass(function):
        function.__init__ = decorate(mode, function.__init__)
        return function
    if inspect.isgeneratorfunction(function):
        return _around_generator(mode, function)
    if inspect.iscoroutinefunction(function):
        return _around_coroutine(mode, function)

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        with mode.clone():
            return function(*args, **kwargs)

    return wrapper
