"""Gradients, modes, hooks and functions in Python."""

import asyncio
import threading
import unittest

import deft
from deft import autograd
from deft.autograd import Function


class Backward(unittest.TestCase):
    def test_gradients_add_up(self):
        x = deft.tensor([2.0, 3.0], requires_grad=True)
        (x * x).sum().backward()
        self.assertEqual(x.grad.tolist(), [4, 6])
        (x * 2).sum().backward()
        self.assertEqual(x.grad.tolist(), [6, 8])
        x.grad = None
        self.assertIsNone(x.grad)
        y = x * 3
        y.backward(deft.tensor([1.0, 10.0]))
        self.assertEqual(x.grad.tolist(), [3, 30])

    def test_the_graph_is_kept_on_request(self):
        x = deft.tensor(2.0, requires_grad=True)
        y = x**3
        y.backward(retain_graph=True)
        y.backward()
        self.assertEqual(x.grad.item(), 24)
        with self.assertRaises(RuntimeError):
            y.backward()

    def test_gradients_of_gradients(self):
        x = deft.tensor(3.0, requires_grad=True)
        (g,) = autograd.grad(x**4, x, create_graph=True)
        (h,) = autograd.grad(g, x)
        self.assertEqual((g.item(), h.item()), (108, 108))

    def test_grad_of_some(self):
        x, y = deft.ones(2, requires_grad=True), deft.ones(2, requires_grad=True)
        z = (x * 5).sum()
        with self.assertRaises(RuntimeError):
            autograd.grad(z, [x, y], retain_graph=True)
        g = autograd.grad(z, [x, y], allow_unused=True, retain_graph=True)
        self.assertIsNone(g[1])
        g = autograd.grad(z, [x, y], materialize_grads=True, retain_graph=True)
        self.assertEqual(g[1].tolist(), [0, 0])
        self.assertIsNone(x.grad)
        z.backward(inputs=[x])
        self.assertEqual(x.grad.tolist(), [5, 5])

    def test_writes_that_break_gradients_are_noticed(self):
        x = deft.ones(2, requires_grad=True)
        y = x.exp()
        y += 1
        with self.assertRaisesRegex(RuntimeError, "autograd_test.py"):
            y.sum().backward()
        with self.assertRaises(RuntimeError):
            x += 1

    def test_nodes(self):
        x = deft.ones(2, requires_grad=True)
        y = (x * 2).sum()
        self.assertEqual(y.grad_fn.name(), "SumBackward0")
        (before, _), = y.grad_fn.next_functions
        self.assertEqual(before.name(), "MulBackward0")
        self.assertIsNone(x.grad_fn)
        self.assertTrue(x.is_leaf and not y.is_leaf)

    def test_anomalies_are_named(self):
        x = deft.tensor([-1.0], requires_grad=True)
        with self.assertRaises(RuntimeError):
            with autograd.detect_anomaly():
                x.sqrt().sum().backward()


class Hooks(unittest.TestCase):
    def test_tensor_hooks_change_gradients_until_removed(self):
        x = deft.ones(2, requires_grad=True)
        handle = x.register_hook(lambda g: g * 10)
        (x * 1).sum().backward()
        handle.remove()
        (x * 1).sum().backward()
        self.assertEqual(x.grad.tolist(), [11, 11])

    def test_errors_in_hooks_come_through(self):
        x = deft.ones(2, requires_grad=True)
        y = x * 2

        def hook(g):
            raise KeyError("mine")

        y.register_hook(hook)
        with self.assertRaisesRegex(KeyError, "mine"):
            y.sum().backward()

    def test_hooks_after_accumulation_and_retained_gradients(self):
        seen = []
        x = deft.ones(2, requires_grad=True)
        x.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.tolist()))
        y = x * 3
        y.retain_grad()
        y.sum().backward()
        self.assertEqual((seen, y.grad.tolist()), ([[3, 3]], [1, 1]))

    def test_node_hooks(self):
        x = deft.ones(2, requires_grad=True)
        y = x * 3
        y.grad_fn.register_hook(lambda inputs, outputs: tuple(None if g is None else g * 2 for g in inputs))
        y.sum().backward()
        self.assertEqual(x.grad.tolist(), [6, 6])


class Modes(unittest.TestCase):
    def test_context_managers(self):
        x = deft.ones(1, requires_grad=True)
        with deft.no_grad():
            self.assertFalse((x * 2).requires_grad)
            with deft.enable_grad():
                self.assertTrue((x * 2).requires_grad)
            self.assertFalse(deft.is_grad_enabled())
        self.assertTrue(deft.is_grad_enabled())
        with deft.set_grad_enabled(False):
            self.assertFalse(deft.is_grad_enabled())
        deft.set_grad_enabled(False)
        self.assertFalse(deft.is_grad_enabled())
        deft.set_grad_enabled(True)
        with deft.inference_mode():
            y = x * 2
            self.assertTrue(y.is_inference())
            with deft.inference_mode(False):
                self.assertTrue(deft.is_grad_enabled())
        self.assertFalse(deft.is_inference_mode_enabled())
        with self.assertRaises(RuntimeError):
            (x * y).sum().backward()

    def test_decorators(self):
        @deft.no_grad()
        def off():
            return deft.is_grad_enabled()

        @deft.no_grad
        def bare():
            return deft.is_grad_enabled()

        @deft.set_grad_enabled(False)
        def also_off():
            return deft.is_grad_enabled()

        @deft.inference_mode()
        def inference(deep=3):
            return inference(deep - 1) if deep else deft.is_inference_mode_enabled()

        self.assertEqual((off(), bare(), also_off(), inference()), (False, False, False, True))
        self.assertTrue(deft.is_grad_enabled())
        self.assertEqual(off.__name__, "off")

    def test_generators_leave_their_caller_alone(self):
        @deft.no_grad()
        def numbers():
            got = yield deft.is_grad_enabled()
            try:
                yield got, deft.is_grad_enabled()
            except ValueError:
                yield "caught", deft.is_grad_enabled()

        g = numbers()
        self.assertFalse(next(g))
        self.assertTrue(deft.is_grad_enabled())
        self.assertEqual(g.send(5), (5, False))
        self.assertEqual(g.throw(ValueError()), ("caught", False))
        self.assertTrue(deft.is_grad_enabled())

    def test_coroutines_do_not_mix(self):
        async def seen(mode, out):
            for _ in range(3):
                out.append(deft.is_grad_enabled())
                await asyncio.sleep(0)

        off, on = [], []

        async def both():
            await asyncio.gather(deft.no_grad()(seen)(None, off), seen(None, on))

        asyncio.run(both())
        self.assertEqual((off, on), ([False] * 3, [True] * 3))

    def test_an_error_leaves_the_mode(self):
        with self.assertRaises(KeyError):
            with deft.no_grad():
                raise KeyError
        self.assertTrue(deft.is_grad_enabled())

    def test_threads_have_modes_of_their_own(self):
        seen = []
        with deft.no_grad():
            thread = threading.Thread(target=lambda: seen.append(deft.is_grad_enabled()))
            thread.start()
            thread.join()
        self.assertEqual(seen, [True])

    def test_autocast(self):
        a = deft.ones(4, 4)
        with deft.autocast("cpu", dtype=deft.bfloat16):
            self.assertIs((a @ a).dtype, deft.bfloat16)
            with deft.autocast("cpu", enabled=False):
                self.assertIs((a @ a).dtype, deft.float32)
        self.assertIs((a @ a).dtype, deft.float32)

        @deft.autocast("cpu", dtype=deft.bfloat16)
        def product():
            return (a @ a).dtype

        self.assertIs(product(), deft.bfloat16)


class Scale(Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        assert ctx.needs_input_grad == (True, False)
        return grad * ctx.factor, None


class Functions(unittest.TestCase):
    def test_gradients_and_names(self):
        x = deft.ones(2, requires_grad=True)
        y = Scale.apply(x, 4.0)
        self.assertIn("ScaleBackward", y.grad_fn.name())
        y.sum().backward()
        self.assertEqual(x.grad.tolist(), [4, 4])

    def test_several_outputs_and_missing_gradients(self):
        class Two(Function):
            @staticmethod
            def forward(ctx, a, b):
                ctx.set_materialize_grads(False)
                return a * 2, b * 3, "text"

            @staticmethod
            def backward(ctx, ga, gb, *rest):
                return ga if ga is None else ga * 2, gb if gb is None else gb * 3

        a, b = deft.ones(1, requires_grad=True), deft.ones(1, requires_grad=True)
        p, q, text = Two.apply(a, b)
        p.sum().backward()
        self.assertEqual((a.grad.tolist(), b.grad, text), ([2], None, "text"))

    def test_wrong_backwards_are_errors(self):
        class Wrong(Function):
            @staticmethod
            def forward(ctx, x):
                return x * 1

            @staticmethod
            def backward(ctx, g):
                return g, g

        class Raises(Wrong):
            @staticmethod
            def backward(ctx, g):
                raise ZeroDivisionError("here")

        x = deft.ones(1, requires_grad=True)
        with self.assertRaisesRegex(RuntimeError, "number of gradients"):
            Wrong.apply(x).sum().backward()
        with self.assertRaisesRegex(ZeroDivisionError, "here"):
            Raises.apply(x).sum().backward()
        with self.assertRaises(NotImplementedError):
            Function.apply(x)

    def test_saved_tensors_are_checked_for_writes(self):
        x = deft.ones(2, requires_grad=True)
        y = x * 1
        z = Scale.apply(y, 2.0)
        y.mul_(2)
        with self.assertRaises(RuntimeError):
            z.sum().backward()

    def test_setup_context(self):
        class New(Function):
            @staticmethod
            def forward(x, k):
                return x * k

            @staticmethod
            def setup_context(ctx, inputs, output):
                ctx.k = inputs[1]

            @staticmethod
            def backward(ctx, g):
                return g * ctx.k, None

        x = deft.ones(1, requires_grad=True)
        New.apply(x, 7.0).backward()
        self.assertEqual(x.grad.item(), 7)

    def test_contexts_go_with_the_graph(self):
        import gc
        import weakref

        class Keep(Function):
            @staticmethod
            def forward(ctx, x):
                ctx.thing = Thing()
                seen.append(weakref.ref(ctx.thing))
                return x * 1

            @staticmethod
            def backward(ctx, g):
                return g

        class Thing:
            pass

        seen = []
        y = Keep.apply(deft.ones(1, requires_grad=True))
        self.assertIsNotNone(seen[0]())
        del y
        gc.collect()
        self.assertIsNone(seen[0]())


if __name__ == "__main__":
    unittest.main()
