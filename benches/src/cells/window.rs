//! Pooling as networks have it: the stem's maximum, averages of two by two, and the mean of whole planes; and planes twice as large.

use baracuda_ops::{
    AnyDescriptor, Coordinates, DType, PoolDescriptor, PoolWindow, Pooling, ResizeDescriptor, ResizeMode, Result,
    TensorDesc,
};

use super::Cell;

/// Labels of the cells.
pub(super) const OPS: [&str; 10] = [
    "max_pool",
    "max_pool_nhwc",
    "avg_pool",
    "avg_pool_nhwc",
    "global_avg_pool",
    "global_avg_pool_nhwc",
    "upsample_nearest",
    "upsample_nearest_nhwc",
    "upsample_bilinear",
    "upsample_bilinear_nhwc",
];

/// The cells of one label.
pub(super) fn cells(cells: &mut Vec<Cell>, op: &'static str) -> Result<()> {
    if op.starts_with("upsample") {
        return upsample(cells, op);
    }
    let tensor = if op.ends_with("nhwc") { TensorDesc::channels_last } else { TensorDesc::contiguous };
    let image = [64, 64, 112, 112];
    let (dims, pooling, window, of_shape): (_, _, _, &[u64]) = match op.trim_end_matches("_nhwc") {
        "max_pool" => (
            image,
            Pooling::Max,
            PoolWindow::new(&[3, 3]).stride(&[2, 2]).padding(&[1, 1]),
            &[64, 64, 112, 112, 3, 2, 1],
        ),
        "avg_pool" => (image, Pooling::Average, PoolWindow::new(&[2, 2]), &[64, 64, 112, 112, 2, 2, 0]),
        _ => ([64, 256, 56, 56], Pooling::Average, PoolWindow::global(), &[64, 256, 56, 56]),
    };
    for dtype in [DType::BF16, DType::F32] {
        let x = tensor(dtype, &dims)?;
        let forward = PoolDescriptor::new(x, pooling, window.clone())?;
        let forward = if pooling == Pooling::Max { forward.offsets()? } else { forward };
        let backward = AnyDescriptor::new(forward.backward()?);
        let forward = AnyDescriptor::new(forward);
        let size = dtype.size_bytes();
        // As the peers count: x and y once each, of the mean of planes x alone.
        let outputs = if op.starts_with("global") { 0 } else { forward.slots()[1].desc.elements() };
        let bytes = (x.elements() + outputs) * size;
        for (pass, descriptor) in [("fw", forward), ("bw", backward)] {
            let in_bytes = if pass == "fw" { x.span_bytes() } else { descriptor.slots()[0].span_bytes };
            cells.push(Cell::new((op, pass), of_shape.to_vec(), dtype, descriptor, bytes, in_bytes));
        }
    }
    Ok(())
}

fn upsample(cells: &mut Vec<Cell>, op: &'static str) -> Result<()> {
    let tensor = if op.ends_with("nhwc") { TensorDesc::channels_last } else { TensorDesc::contiguous };
    let (mode, coordinates) = match op.contains("nearest") {
        true => (ResizeMode::Nearest, Coordinates::Asymmetric),
        false => (ResizeMode::Linear, Coordinates::HalfPixel),
    };
    for dtype in [DType::BF16, DType::F32] {
        let (x, y) = (tensor(dtype, &[64, 64, 56, 56])?, tensor(dtype, &[64, 64, 112, 112])?);
        let forward = ResizeDescriptor::new(x, vec![112, 112], mode)?.coordinates(coordinates)?.layout("y", y)?;
        let backward = AnyDescriptor::new(forward.backward()?);
        let bytes = x.span_bytes() + y.span_bytes();
        for (pass, descriptor, in_bytes) in
            [("fw", AnyDescriptor::new(forward), x.span_bytes()), ("bw", backward, y.span_bytes())]
        {
            cells.push(Cell::new((op, pass), vec![64, 64, 56, 56, 2], dtype, descriptor, bytes, in_bytes));
        }
    }
    Ok(())
}
