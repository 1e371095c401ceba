//! Rows of a table by indices, and elements along an axis: read, and written.

use baracuda_ops::{
    AnyDescriptor, Combine, DType, GatherDescriptor, IndexAddDescriptor, IndexSelectDescriptor, NonzeroDescriptor,
    Result, ScatterDescriptor, TensorDesc,
};

use super::Cell;

/// Labels of the cells.
pub(super) const OPS: [&str; 6] =
    ["embedding", "gather_1", "embedding_backward", "index_add", "scatter_add_1", "nonzero"];

/// Rows and columns of tables, and indices.
const TABLES: [[u64; 3]; 3] = [[32_000, 4096, 8192], [128_256, 4096, 8192], [1_000_000, 64, 65_536]];

/// The cells of one label.
pub(super) fn cells(cells: &mut Vec<Cell>, op: &'static str) -> Result<()> {
    if op == "nonzero" {
        // About half of the elements are true.
        for shape in [&[1 << 26][..], &[8192, 8192], &[1 << 16]] {
            let x = TensorDesc::contiguous(DType::Bool, shape)?;
            let nonzero = NonzeroDescriptor::new(x)?;
            let nonzero = if shape.len() > 1 { nonzero.per_axis()? } else { nonzero };
            let bytes = x.elements() * (1 + 8 * shape.len() as u64);
            let nonzero = AnyDescriptor::new(nonzero);
            cells.push(Cell::new((op, "fw"), shape.to_vec(), DType::Bool, nonzero, bytes, x.elements()));
        }
        return Ok(());
    }
    for dtype in [DType::BF16, DType::F32] {
        let dense = |dims: &[u64]| TensorDesc::contiguous(dtype, dims);
        let size = dtype.size_bytes();
        if op == "gather_1" || op == "scatter_add_1" {
            let (rows, cols, found) = (16_384, 4096, 1024);
            let indices = TensorDesc::contiguous(DType::I64, &[rows, found])?;
            if op == "scatter_add_1" {
                let add = ScatterDescriptor::new(dense(&[rows, cols])?, 1, indices, Combine::Add)?.base()?;
                let bytes = rows * found * (8 + 3 * size);
                let add = AnyDescriptor::new(add);
                cells.push(Cell::new((op, "fw"), vec![rows, cols], dtype, add, bytes, rows * cols * size));
                continue;
            }
            let gather = AnyDescriptor::new(GatherDescriptor::new(dense(&[rows, cols])?, 1, indices)?);
            let bytes = rows * found * (8 + 2 * size);
            cells.push(Cell::new((op, "fw"), vec![rows, cols], dtype, gather, bytes, rows * cols * size));
            continue;
        }
        for [rows, cols, count] in TABLES {
            let indices = TensorDesc::contiguous(DType::I64, &[count])?;
            let shape = vec![rows, cols, count];
            if op != "embedding" {
                let add = IndexAddDescriptor::new(dense(&[rows, cols])?, 0, indices, Combine::Add)?;
                let (add, bytes) = match op {
                    "index_add" => (add.base()?, 3 * count * cols * size),
                    _ => (add, (count + rows) * cols * size),
                };
                cells.push(Cell::new((op, "fw"), shape, dtype, AnyDescriptor::new(add), bytes, rows * cols * size));
                continue;
            }
            let select = AnyDescriptor::new(IndexSelectDescriptor::new(dense(&[rows, cols])?, 0, indices)?);
            let bytes = 2 * count * cols * size;
            cells.push(Cell::new((op, "fw"), vec![rows, cols, count], dtype, select, bytes, count * cols * size));
        }
    }
    Ok(())
}
