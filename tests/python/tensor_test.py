"""Tensors in Python: making, indexing, operators, text, NumPy, DLPack, pickling."""

import copy
import gc
import math
import pickle
import sys
import unittest
import weakref

import deft

try:
    import numpy
except ImportError:
    numpy = None


class Making(unittest.TestCase):
    def test_types_follow_the_values(self):
        self.assertIs(deft.tensor([1, 2]).dtype, deft.int64)
        self.assertIs(deft.tensor([1, 2.0]).dtype, deft.float32)
        self.assertIs(deft.tensor([True, False]).dtype, deft.bool)
        self.assertIs(deft.tensor([True, 2]).dtype, deft.int64)
        self.assertIs(deft.tensor([1], dtype=deft.float16).dtype, deft.float16)

    def test_nested_values_keep_their_order(self):
        values = [[[1, 2, 3], [4, 5, 6]], [[7, 8, 9], [10, 11, 12]]]
        t = deft.tensor(values)
        self.assertEqual(tuple(t.shape), (2, 2, 3))
        self.assertEqual(t.tolist(), values)

    def test_ragged_and_strange_values_are_errors(self):
        for bad in ([[1, 2], [3]], [[1], 2], [1, [2]], [[[1]], [2]]):
            with self.assertRaises(ValueError, msg=bad):
                deft.tensor(bad)
        with self.assertRaises(TypeError):
            deft.tensor([object()])
        with self.assertRaises(TypeError):
            deft.tensor("text")

    def test_large_integers_are_exact(self):
        self.assertEqual(deft.tensor([2**62 + 1, -(2**63)]).tolist(), [2**62 + 1, -(2**63)])
        with self.assertRaises(RuntimeError):
            deft.tensor([2**63])

    def test_sizes_come_one_by_one_or_as_a_tuple(self):
        for t in (deft.zeros(2, 3), deft.zeros((2, 3)), deft.zeros([2, 3]), deft.zeros(size=(2, 3))):
            self.assertEqual(tuple(t.shape), (2, 3))
        self.assertEqual(tuple(deft.zeros(()).shape), ())

    def test_ranges(self):
        self.assertEqual(deft.arange(3).tolist(), [0, 1, 2])
        self.assertEqual(deft.arange(1, 2, 0.25).tolist(), [1, 1.25, 1.5, 1.75])
        self.assertIs(deft.arange(3).dtype, deft.int64)
        self.assertEqual(deft.linspace(0, 1, 3).tolist(), [0, 0.5, 1])

    def test_sizes_know_their_product(self):
        s = deft.zeros(2, 3).shape
        self.assertEqual((s, s.numel(), repr(s)), ((2, 3), 6, "deft.Size([2, 3])"))
        self.assertIsInstance(s, tuple)

    def test_seeds_repeat_draws(self):
        deft.manual_seed(7)
        a = deft.randn(5)
        deft.manual_seed(7)
        self.assertTrue(deft.equal(a, deft.randn(5)))
        g = deft.Generator().manual_seed(7)
        b = deft.rand(5, generator=g)
        c = deft.rand(5, generator=g)
        self.assertFalse(deft.equal(b, c))
        g.manual_seed(7)
        self.assertTrue(deft.equal(b, deft.rand(5, generator=g)))
        self.assertTrue(all(0 <= v < 4 for v in deft.randint(4, (50,)).tolist()))


class Indexing(unittest.TestCase):
    def setUp(self):
        self.x = deft.arange(24).reshape(2, 3, 4)

    def test_numbers_slices_none_ellipsis(self):
        x = self.x
        self.assertEqual(x[1, 2, 3].item(), 23)
        self.assertEqual(x[-1][0].tolist(), [12, 13, 14, 15])
        self.assertEqual(x[:, 1:, ::2].tolist(), [[[4, 6], [8, 10]], [[16, 18], [20, 22]]])
        self.assertEqual(tuple(x[None, ..., 0].shape), (1, 2, 3))
        self.assertEqual(tuple(x[..., None].shape), (2, 3, 4, 1))
        self.assertTrue(x[0]._shares_storage(x))

    def test_tensors_and_lists(self):
        x = self.x
        self.assertEqual(x[[1, 0], 0, 0].tolist(), [12, 0])
        self.assertEqual(x[x > 21].tolist(), [22, 23])
        self.assertEqual(x[:, deft.tensor([2, 0])][0, :, 0].tolist(), [8, 0])
        self.assertEqual(x[deft.tensor([True, False])].tolist(), [x[0].tolist()])
        self.assertEqual(x[deft.tensor(1)].tolist(), x[1].tolist())

    def test_assignment(self):
        x = deft.zeros(3, 3)
        x[0] = 1
        x[1, 1:] = deft.tensor([2.0, 3.0])
        x[:, 0] += 10
        x[x == 3] = -1
        self.assertEqual(x.tolist(), [[11, 1, 1], [10, 2, -1], [10, 0, 0]])
        x[[0, 2]] = [[1, 2, 3], [4, 5, 6]]
        self.assertEqual(x[2].tolist(), [4, 5, 6])
        i = deft.zeros(2, dtype=deft.int64)
        i[0] = deft.tensor(2.7)
        self.assertEqual(i.tolist(), [2, 0])

    def test_errors_are_those_of_python(self):
        for error, index in ((IndexError, 5), (IndexError, (0, 0, 0, 0)), (TypeError, "a"), (IndexError, 1.5),
                             (ValueError, slice(None, None, -1))):
            with self.assertRaises(error, msg=index):
                self.x[index]

    def test_iteration(self):
        self.assertEqual([r.tolist() for r in deft.tensor([[1], [2]])], [[1], [2]])
        self.assertEqual(len(self.x), 2)
        with self.assertRaises(TypeError):
            iter(deft.tensor(1))


class Operators(unittest.TestCase):
    def test_arithmetic(self):
        a, b = deft.tensor([7.0, -7.0]), deft.tensor([2.0, 2.0])
        self.assertEqual((a + b).tolist(), [9, -5])
        self.assertEqual((1 - a).tolist(), [-6, 8])
        self.assertEqual((a // b).tolist(), [3, -4])
        self.assertEqual((a % b).tolist(), [1, 1])
        self.assertEqual((2**b).tolist(), [4, 4])
        self.assertEqual((a @ b).item(), 0)
        self.assertEqual((-a).tolist(), [-7, 7])
        self.assertEqual(abs(a).tolist(), [7, 7])
        self.assertEqual((~deft.tensor([True])).tolist(), [False])
        self.assertEqual((deft.tensor([6]) & 3 | 8).tolist(), [10])

    def test_in_place_keeps_the_object(self):
        a = deft.tensor([1.0])
        before = a
        a += 1
        a *= 3
        self.assertIs(a, before)
        self.assertEqual(a.item(), 6)
        self.assertEqual(a._version, 2)

    def test_comparisons_and_truth(self):
        a = deft.tensor([1, 2])
        self.assertEqual((a == a).tolist(), [True, True])
        self.assertFalse(a == None)  # noqa: E711
        with self.assertRaises(RuntimeError):
            bool(a)
        self.assertTrue(deft.tensor(1))
        self.assertEqual(float(deft.tensor(1.5)) + int(deft.tensor(2)), 3.5)
        self.assertEqual([10, 20, 30][deft.tensor(1)], 20)
        self.assertTrue(2 in a)

    def test_types_are_promoted_as_in_torch(self):
        self.assertIs((deft.tensor([1]) + 1.5).dtype, deft.float32)
        self.assertIs((deft.tensor([1]) / deft.tensor([2])).dtype, deft.float32)
        self.assertIs((deft.tensor([1.0], dtype=deft.float16) + deft.tensor(2.0)).dtype, deft.float16)

    def test_foreign_operands_are_refused(self):
        with self.assertRaises(TypeError):
            deft.tensor([1]) + "a"
        with self.assertRaises(TypeError):
            [] @ deft.tensor([1])

    def test_keywords(self):
        a = deft.tensor([1.0, 2.0])
        self.assertEqual(deft.add(input=a, other=a, alpha=2).tolist(), [3, 6])
        self.assertEqual(a.sub(1, alpha=3).tolist(), [-2, -1])
        with self.assertRaisesRegex(TypeError, "did you mean 'keepdim'"):
            a.sum(keep_dim=True)
        with self.assertRaisesRegex(TypeError, "missing required argument 'dim'"):
            a.softmax()
        with self.assertRaisesRegex(TypeError, "argument 'other'"):
            deft.add(a, "b")
        with self.assertRaises(TypeError):
            a.add(1, 2, 3)
        with self.assertRaises(TypeError):
            deft.add(a, a, other=a)

    def test_reductions(self):
        a = deft.tensor([[1.0, 5.0], [4.0, 2.0]])
        values, indices = a.max(1)
        self.assertEqual((values.tolist(), indices.tolist()), ([5, 4], [1, 0]))
        self.assertEqual(a.max(dim=0).values.tolist(), [4, 5])
        self.assertEqual(a.max().item(), 5)
        self.assertEqual(a.sum((0, 1)).item(), 12)
        self.assertEqual(tuple(a.sum(0, keepdim=True).shape), (1, 2))
        self.assertEqual(a.mean(-1).tolist(), [3, 3])
        self.assertAlmostEqual(a.var(unbiased=False).item(), 2.5)
        self.assertEqual(a.topk(1).indices.tolist(), [[1], [0]])
        self.assertEqual(deft.where(a > 3)[0].tolist(), [0, 1])

    def test_shapes(self):
        a = deft.arange(6)
        self.assertEqual(a.view(2, 3).t().tolist(), [[0, 3], [1, 4], [2, 5]])
        self.assertEqual(tuple(a.reshape(1, 6).squeeze(0).unsqueeze(-1).shape), (6, 1))
        self.assertEqual([tuple(p.shape) for p in a.split([2, 4])], [(2,), (4,)])
        self.assertEqual(deft.cat([a, a]).shape, (12,))
        self.assertEqual(tuple(deft.stack((a, a), 1).shape), (6, 2))
        self.assertEqual(tuple(a.view(2, 3).movedim((0, 1), (1, 0)).shape), (3, 2))
        self.assertEqual(a.roll(1).tolist(), [5, 0, 1, 2, 3, 4])
        self.assertEqual(deft.einsum("i,j->ij", a, a)[5, 5].item(), 25)

    def test_errors_have_the_type_of_torchs(self):
        with self.assertRaises(RuntimeError):
            deft.ones(2) + deft.ones(3)
        with self.assertRaises(deft.ShapeError):
            deft.ones(2, 3) @ deft.ones(2, 3)
        with self.assertRaises(IndexError):
            deft.ones(2).sum(3)
        with self.assertRaises(NotImplementedError):
            raise deft.UnsupportedError("x")


class Text(unittest.TestCase):
    def test_as_torch_prints(self):
        self.assertEqual(repr(deft.tensor([1.0, 2.5])), "tensor([1.0000, 2.5000])")
        self.assertEqual(repr(deft.tensor([1.0, 2.0])), "tensor([1., 2.])")
        self.assertEqual(repr(deft.tensor([[1, -2], [3, 4]])), "tensor([[ 1, -2],\n        [ 3,  4]])")
        self.assertEqual(repr(deft.tensor(3.5)), "tensor(3.5000)")
        self.assertEqual(repr(deft.tensor([True])), "tensor([True])")
        self.assertEqual(repr(deft.zeros(0)), "tensor([])")
        self.assertEqual(repr(deft.zeros(2, 0)), "tensor([], size=(2, 0))")
        self.assertEqual(repr(deft.tensor([1], dtype=deft.int32)), "tensor([1], dtype=deft.int32)")
        self.assertEqual(repr(deft.tensor([1.0], requires_grad=True)), "tensor([1.], requires_grad=True)")
        self.assertEqual(repr(deft.tensor([1.0], requires_grad=True) * 2), "tensor([2.], grad_fn=<MulBackward0>)")
        self.assertEqual(repr(deft.tensor([math.inf, math.nan, -1.0])), "tensor([inf, nan, -1.])")
        self.assertEqual(repr(deft.tensor([math.nan, 1.0])), "tensor([nan, 1.])")
        self.assertEqual(repr(deft.tensor([1e-8, 1.0])), "tensor([1.0000e-08, 1.0000e+00])")
        self.assertEqual(repr(deft.arange(2000)), "tensor([   0,    1,    2,  ..., 1997, 1998, 1999])")
        self.assertEqual(f"{deft.tensor(1.5):.2f}", "1.50")


@unittest.skipIf(numpy is None, "NumPy is not installed")
class NumPy(unittest.TestCase):
    def test_memory_is_shared_both_ways(self):
        t = deft.zeros(2, 3)
        a = t.numpy()
        a[1, 2] = 5
        self.assertEqual(t[1, 2].item(), 5)
        b = numpy.arange(6, dtype=numpy.int32).reshape(2, 3)[:, ::2]
        s = deft.from_numpy(b)
        s[0, 1] = 9
        self.assertEqual(b[0, 1], 9)
        self.assertEqual((s.dtype, tuple(s.stride())), (deft.int32, (3, 2)))

    def test_memory_outlives_its_maker(self):
        a = deft.arange(1000).numpy()
        t = deft.from_numpy(numpy.arange(1000))
        gc.collect()
        self.assertEqual(int(a.sum()), int(t.sum()))

    def test_all_types(self):
        for name in ("float64", "float32", "float16", "int64", "int32", "int8", "uint8", "bool"):
            a = numpy.ones((2, 2), dtype=name)
            t = deft.from_numpy(a)
            self.assertEqual(repr(t.dtype), "deft." + name)
            self.assertEqual(t.numpy().dtype, a.dtype)

    def test_what_cannot_be_shared(self):
        read_only = numpy.arange(3)
        read_only.flags.writeable = False
        t = deft.from_numpy(read_only)
        t[0] = 7
        self.assertEqual(read_only[0], 0)
        for bad, error in ((numpy.arange(3)[::-1], ValueError), (numpy.array([object()]), TypeError), ([1], TypeError)):
            with self.assertRaises(error):
                deft.from_numpy(bad)
        with self.assertRaisesRegex(RuntimeError, "detach"):
            deft.ones(1, requires_grad=True).numpy()
        with self.assertRaises(TypeError):
            deft.ones(1, dtype=deft.bfloat16).numpy()

    def test_what_is_shared_by_a_copy(self):
        backwards = numpy.arange(12.0).reshape(3, 4)[::-1, ::-2]
        read_only = numpy.arange(3.0)
        read_only.flags.writeable = False
        for array in (backwards, read_only, backwards[:0], backwards[:, :1]):
            for make in (deft.from_dlpack, deft.tensor, deft.as_tensor, deft.asarray):
                with self.subTest(f"{make.__name__} of {array.tolist()}"):
                    t = make(array)
                    self.assertEqual(t.tolist(), array.tolist())
                    before = array.copy()
                    t.add_(1)
                    self.assertEqual(array.tolist(), before.tolist())
        for array, why in ((backwards, "backward memory"), (read_only, "read-only memory")):
            with self.assertRaisesRegex(BufferError, why):
                deft.from_dlpack(array, copy=False)
        array = numpy.arange(3.0)
        self.assertTrue(numpy.shares_memory(deft.from_dlpack(array, copy=False, device="cpu").numpy(), array))
        self.assertFalse(numpy.shares_memory(deft.from_dlpack(array, copy=True).numpy(), array))
        gc.collect()
        self.assertEqual(sys.getrefcount(array), 2)  # what was refused or dropped holds nothing

    def test_arrays_meet_tensors(self):
        self.assertIsInstance(deft.ones(2) * numpy.float64(3), deft.Tensor)
        self.assertEqual(numpy.asarray(deft.tensor([1, 2])).tolist(), [1, 2])
        self.assertEqual(deft.tensor(numpy.eye(2)).dtype, deft.float64)
        self.assertEqual(deft.zeros(4)[numpy.int64(1)].item(), 0)

    def test_dlpack_with_numpy(self):
        t = deft.arange(4)
        a = numpy.from_dlpack(t)
        self.assertEqual(a.tolist(), [0, 1, 2, 3])
        s = deft.from_dlpack(numpy.arange(4.0))
        self.assertEqual(s.tolist(), [0, 1, 2, 3])


class Exchange(unittest.TestCase):
    def test_dlpack_shares_and_is_consumed_once(self):
        t = deft.arange(6).view(2, 3)
        for version in (None, (1, 0)):
            s = deft.from_dlpack(t.__dlpack__(max_version=version))
            s[0, 0] = 42
            self.assertEqual(t[0, 0].item(), 42)
        capsule = t.__dlpack__()
        deft.from_dlpack(capsule)
        with self.assertRaises(ValueError):
            deft.from_dlpack(capsule)
        self.assertEqual(t.__dlpack_device__(), (1, 0))
        with self.assertRaises(BufferError):
            deft.ones(1, requires_grad=True).__dlpack__()
        t.__dlpack__()  # dropped without a consumer

    def test_memoryview(self):
        m = memoryview(deft.arange(4).view(2, 2))
        self.assertEqual((m.shape, m.format, m.tolist()), ((2, 2), "q", [[0, 1], [2, 3]]))

    def test_pickle_and_copies(self):
        for dtype in (deft.float32, deft.bfloat16, deft.int64, deft.bool):
            t = deft.tensor([[1, 0], [2, 3]]).to(dtype)
            s = pickle.loads(pickle.dumps(t))
            self.assertIs(s.dtype, dtype)
            self.assertTrue(deft.equal(s, t))
        p = deft.nn.Parameter(deft.ones(2))
        p.grad = deft.ones(2)
        q = copy.deepcopy([p, p])
        self.assertIsInstance(q[0], deft.nn.Parameter)
        self.assertIs(q[0], q[1])
        self.assertFalse(q[0]._shares_storage(p))
        self.assertEqual(q[0].grad.tolist(), [1, 1])
        r = pickle.loads(pickle.dumps(p))
        self.assertIsInstance(r, deft.nn.Parameter)
        self.assertTrue(r.requires_grad)
        with self.assertRaises(RuntimeError):
            copy.deepcopy(p * 2)

    def test_types_and_devices_are_values(self):
        self.assertIs(pickle.loads(pickle.dumps(deft.float32)), deft.float32)
        self.assertEqual(pickle.loads(pickle.dumps(deft.device("cuda", 1))), deft.device("cuda:1"))
        self.assertEqual((str(deft.device("cpu")), repr(deft.device("cpu"))), ("cpu", "device(type='cpu')"))
        self.assertEqual(repr(deft.bfloat16), "deft.bfloat16")
        self.assertTrue(deft.float32.is_floating_point)
        self.assertIs(deft.zeros(1).to(deft.float64).dtype, deft.float64)
        self.assertIs(deft.zeros(1).to("cpu", deft.int32).dtype, deft.int32)
        t = deft.zeros(1)
        self.assertIs(t.to("cpu"), t)
        self.assertIs(t.float(), t)

    def test_weak_references_and_reuse(self):
        t = deft.zeros(1)
        seen = weakref.ref(t)
        self.assertIs(seen(), t)
        del t
        self.assertIsNone(seen())

    def test_nothing_leaks(self):
        import resource

        def rounds(n):
            for _ in range(n):
                x = deft.ones(64, requires_grad=True)
                y = (x * 2 + 1).relu().sum()
                y.backward()
                deft.tensor(x.tolist())[3:5]
                memoryview(x.detach())

        rounds(2000)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        rounds(5000)
        self.assertLess(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, 4096)


class Names(unittest.TestCase):
    def test_missing_names_name_the_nearest(self):
        with self.assertRaisesRegex(AttributeError, "nearest is 'softmax'"):
            deft.sofmax
        with self.assertRaisesRegex(AttributeError, "nearest is 'Linear'"):
            deft.nn.Liner
        self.assertFalse(hasattr(deft, "fft"))
        self.assertTrue(hasattr(deft, "optim"))


if __name__ == "__main__":
    unittest.main()
