"""Golden cases of Fourier transforms, for make_golden.py: sums of 50 digits, compared with NumPy, whose transforms of float64 are less exact than those numbers."""
import zlib

import mpmath
import numpy as np

import case_file

DIGITS = f"mpmath {mpmath.__version__} with 50 digits, compared with NumPy {np.__version__}"


def transformed(lines, results, is_inverse):
    """The transform of each line of complex numbers, as far as `results`."""
    with mpmath.workdps(50):
        n = lines.shape[-1]
        roots = [mpmath.expjpi(mpmath.mpf((2 if is_inverse else -2) * k) / n) for k in range(n)]
        line = lambda x: [mpmath.fsum(mpmath.mpc(v) * roots[j * k % n] for j, v in enumerate(x)) for k in range(results)]
        sums = [line([complex(v) for v in x]) for x in lines]
        return np.array([[(float(v.real), float(v.imag)) for v in x] for x in sums])


def weights(n, is_twice):
    return np.array([2.0 if is_twice and k > 0 and 2 * k != n else 1.0 for k in range(n // 2 + 1)])


def make(write, op, dtype, n, lines=2, is_other=False, scale=1.0):
    """Lines along the last axis; `is_other`: the inverse of fft, the adjoint of the others."""
    name = "-".join([op, f"{lines}x{n}", dtype] + ["other"] * is_other + ["scaled"] * (scale != 1.0))
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    points = n // 2 + 1 if op == "irfft" else n
    draw = lambda *dims: case_file.rounded(rng.standard_normal(dims), dtype)
    x = draw(lines, points) if op == "rfft" else draw(lines, points, 2)
    descriptor = {"x": {"dtype": dtype, "dims": list(x.shape)}, "axis": 1}
    if op == "fft":
        y = transformed(x[..., 0] + 1j * x[..., 1], n, is_other)
        of_numpy = (np.fft.ifft(x[..., 0] + 1j * x[..., 1]) * n if is_other else np.fft.fft(x[..., 0] + 1j * x[..., 1]))
        of_numpy = np.stack([of_numpy.real, of_numpy.imag], -1)
        descriptor |= {"direction": "inverse"} if is_other else {}
    elif op == "rfft":
        own = weights(n, is_other)[:, None]
        y = transformed(x + 0j, n // 2 + 1, False) * own
        of_numpy = np.fft.rfft(x)
        of_numpy = np.stack([of_numpy.real, of_numpy.imag], -1) * own
        descriptor |= {"adjoint": True} if is_other else {}
    else:
        # The imaginary parts of bins 0 and n/2 are not read.
        half = x[..., 0] + 1j * x[..., 1]
        half[:, 0] = half[:, 0].real
        if n % 2 == 0:
            half[:, -1] = half[:, -1].real
        full = np.zeros((lines, n), complex)
        full[:, :points] = half * weights(n, not is_other)
        y = transformed(full, n, True)[..., 0]
        of_numpy = np.fft.irfft(half / (weights(n, True) if is_other else 1), n=n) * n
        descriptor |= {"length": n} | ({"adjoint": True} if is_other else {})
    descriptor |= {"scale": scale} if scale != 1.0 else {}
    y, of_numpy = y * scale, of_numpy * scale
    assert np.abs(y - of_numpy).max() <= 1e-13 * n * abs(scale), f"{name}: {np.abs(y - of_numpy).max()}"
    write(f"{name}.safetensors", op, descriptor, DIGITS, {"x": (dtype, x)}, {"y": (dtype, y)})


def cases(write):
    for op in ("fft", "rfft", "irfft"):
        for dtype in ("f32", "f64"):
            for n in (1, 2, 3, 4, 5, 7, 8, 11, 12, 30, 64, 101):
                make(write, op, dtype, n)
            for n in (6, 9, 13, 60):
                make(write, op, dtype, n, is_other=True, scale=0.125)
