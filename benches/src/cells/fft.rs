//! Fourier transforms of complex and of real lines: short ones, long ones, a very long one, and one of a prime number of points.

use baracuda_ops::{AnyDescriptor, DType, FftDescriptor, IrfftDescriptor, Result, RfftDescriptor, TensorDesc};

use super::Cell;

/// Labels of the cells: the op behind the family.
pub(super) const OPS: [&str; 3] = ["fft_complex", "fft_from_real", "fft_to_real"];

/// Lines and their points. All but the last, of a prime number of points, have 2^24 points together, or 2^20 alone.
const SHAPES: [[u64; 2]; 5] = [[16384, 1024], [4096, 4096], [256, 65536], [1, 1 << 20], [1024, 10007]];

/// The cells of one label.
pub(super) fn cells(cells: &mut Vec<Cell>, op: &'static str) -> Result<()> {
    let dtype = DType::F32;
    for [lines, points] in SHAPES {
        let bins = points / 2 + 1;
        let of = |dims: &[u64]| TensorDesc::contiguous(dtype, dims);
        let descriptor = match op {
            "fft_complex" => AnyDescriptor::new(FftDescriptor::new(of(&[lines, points, 2])?, 1)?),
            "fft_from_real" => AnyDescriptor::new(RfftDescriptor::new(of(&[lines, points])?, 1)?),
            _ => AnyDescriptor::new(IrfftDescriptor::new(of(&[lines, bins, 2])?, 1, points)?),
        };
        let [x, y] = [0, 1].map(|at| descriptor.slots()[at].span_bytes);
        cells.push(Cell::new((op, "fw"), vec![lines, points], dtype, descriptor, x + y, x));
    }
    Ok(())
}
