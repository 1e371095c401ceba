//! Lines of elements in order, the first of them, and places among them.

use baracuda_ops::{AnyDescriptor, DType, Result, SearchSortedDescriptor, SortDescriptor, TensorDesc, TopKDescriptor};

use super::Cell;

/// Labels of the cells.
pub(super) const OPS: [&str; 5] = ["sort_last", "topk_50", "topk_8", "topk_100", "searchsorted"];

/// Shapes that are sorted.
const SORTED: [&[u64]; 3] = [&[1 << 24], &[4096, 4096], &[65_536, 256]];
/// Labels, shapes, and how many elements are wanted.
const FIRST: [(&str, &[u64], u64); 4] = [
    ("topk_50", &[64, 128_256], 50),
    ("topk_8", &[16_384, 4096], 8),
    ("topk_8", &[8192, 256], 8),
    ("topk_100", &[1 << 24], 100),
];

/// Elements that are searched, and values. A search takes as many steps whatever it finds, so that these need not be in order.
const SEARCHED: [[u64; 2]; 3] = [[1024, 1 << 24], [1 << 20, 1 << 22], [256, 4096]];

/// The cells of one label: values and indices of i64 along the last axis, of f32.
pub(super) fn cells(cells: &mut Vec<Cell>, op: &'static str) -> Result<()> {
    let dtype = DType::F32;
    for shape in SORTED.into_iter().filter(|_| op == "sort_last") {
        let x = TensorDesc::contiguous(dtype, shape)?;
        let sort = AnyDescriptor::new(SortDescriptor::new(x, shape.len() - 1)?.with_indices()?);
        cells.push(Cell::new((op, "fw"), shape.to_vec(), dtype, sort, x.elements() * 16, x.span_bytes()));
    }
    for (_, shape, k) in FIRST.into_iter().filter(|(label, ..)| *label == op) {
        let x = TensorDesc::contiguous(dtype, shape)?;
        let top = AnyDescriptor::new(TopKDescriptor::new(x, shape.len() - 1, k)?.with_indices()?);
        cells.push(Cell::new((op, "fw"), shape.to_vec(), dtype, top, x.span_bytes(), x.span_bytes()));
    }
    for [length, count] in SEARCHED.into_iter().filter(|_| op == "searchsorted") {
        let (sorted, values) = (TensorDesc::contiguous(dtype, &[length])?, TensorDesc::contiguous(dtype, &[count])?);
        let search = AnyDescriptor::new(SearchSortedDescriptor::new(sorted, values)?);
        cells.push(Cell::new((op, "fw"), vec![length, count], dtype, search, 4 * length + 12 * count, 4 * count));
    }
    Ok(())
}
