//! Scans of rows, columns and one long line.

use baracuda_ops::{AnyDescriptor, DType, Result, Scan, ScanDescriptor, TensorDesc};

use super::Cell;

/// Labels of the cells: the scan and the axis.
pub(super) const OPS: [&str; 3] = ["cumsum_0", "cumsum_1", "logcumsumexp_1"];

/// Elements of a long line.
const LARGE: u64 = 1 << 26;
const MATRIX: [u64; 2] = [16384, 4096];

/// The cells of one label.
pub(super) fn cells(cells: &mut Vec<Cell>, op: &'static str) -> Result<()> {
    let scan = if op.starts_with("log") { Scan::LogSumExp } else { Scan::Sum };
    let (axis, shapes): (usize, &[&[u64]]) =
        if op.ends_with('0') { (0, &[&MATRIX, &[LARGE]]) } else { (1, &[&MATRIX]) };
    for dtype in [DType::BF16, DType::F32] {
        for shape in shapes {
            let x = TensorDesc::contiguous(dtype, shape)?;
            let bytes = x.span_bytes();
            let descriptor = AnyDescriptor::new(ScanDescriptor::of(x, axis, scan)?);
            cells.push(Cell::new((op, "fw"), shape.to_vec(), dtype, descriptor, 2 * bytes, bytes));
        }
    }
    Ok(())
}
