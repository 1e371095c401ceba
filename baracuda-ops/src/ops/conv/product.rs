//! Convolutions that are products of matrices: those of one group whose kernel is one element, with a stride of 1 and without padding, with their
//! gradients; and those whose kernel covers the whole image, with the gradient of the weight.

use super::geometry::{Axis, Contraction, DIGITS, Strided};
use crate::dtype::DType;
use crate::error::Reason;
use crate::ops::gemm::geometry::{Axes, Extent, MAX_BATCH, Matrix, MatrixPlace, Product};

impl Contraction {
    /// The contraction as a product of matrices: left is the gathered factor, right the plain one. Digits of rows that cannot be joined into one index
    /// become batch extents, those of terms summed extents.
    ///
    /// # Errors
    /// Contractions that are no product of matrices, and factors of two types.
    pub(super) fn product(&self) -> Result<Product, Reason> {
        let Self { groups, rows, terms, n, gathered, plain, out, epilogue, .. } = self;
        Reason::unless(*groups == 1, || format!("it multiplies the matrices of one group, got {groups} groups"))?;
        self.factor_type()?;
        for (at, axis) in gathered.axes.iter().enumerate() {
            Reason::unless(is_place(axis, rows.axes[at], terms.axes[at]), || {
                let (rows, terms) = (rows.axes[at], terms.axes[at]);
                format!(
                    "it serves kernels of 1 with stride 1 and no padding; an axis of {} has {rows} rows of {terms} terms",
                    axis.extent
                )
            })?;
        }
        let beside = &epilogue.beside;
        let column_beside = beside.as_ref().map_or(0, |pre| pre.column);
        let of_gathered = gathered.axes.map(|axis| axis.stride);
        let of_rows = [
            rows.in_order(gathered.row_lead, of_gathered),
            [0; DIGITS],
            out.digits(rows),
            beside.as_ref().map_or([0; DIGITS], |pre| pre.digits(rows)),
        ];
        let of_terms = [terms.in_order(gathered.term_lead, of_gathered), plain.digits(terms), [0; DIGITS], [0; DIGITS]];
        let one = Extent { extent: 1, strides: [0; 4] };
        let axes = Axes {
            batch: rows.extents(of_rows).collect(),
            m: one,
            n: Extent { extent: *n, strides: [0, plain.column, out.column, column_beside] },
            summed: terms.extents(of_terms).collect(),
            k: one,
        };
        let left = Matrix { align_bytes: gathered.align_bytes, ..unlaid(gathered.position, gathered.dtype) };
        Ok(axes.product(1.0, [left, matrix(plain), matrix(out)], epilogue.map(|pre| matrix(&pre))))
    }
}

/// Whether the coordinate along an axis is the index of the row or of the term, and always inside the tensor.
fn is_place(axis: &Axis, rows: u64, terms: u64) -> bool {
    let is_index = |count: u64, factor: i64| count == 1 || (factor == 1 && axis.divisor == 1);
    let has_one = rows == 1 || terms == 1;
    let is_inside = axis.offset == 0 && rows.max(terms) <= axis.extent;
    has_one && is_inside && is_index(rows, axis.of_row) && is_index(terms, axis.of_term)
}

/// An operand as a matrix whose strides are still to be set; its alignment is that of its type.
pub(super) fn unlaid(position: usize, dtype: DType) -> Matrix {
    Matrix {
        place: MatrixPlace::Operand(position),
        dtype,
        align_bytes: dtype.size_bytes(),
        rows: 0,
        cols: 0,
        batch: [0; MAX_BATCH],
        summed: [0; MAX_BATCH],
    }
}

fn matrix(of: &Strided) -> Matrix {
    Matrix { align_bytes: of.align_bytes, ..unlaid(of.position, of.dtype) }
}

#[cfg(test)]
mod tests {
    use super::super::geometry::Contracting;
    use super::*;
    use crate::ops::conv::{ConvDescriptor, ConvWindow};
    use crate::tensor::TensorDesc;

    type Layout = fn(DType, &[u64]) -> crate::Result<TensorDesc>;
    const LAYOUTS: [Layout; 2] = [TensorDesc::contiguous, TensorDesc::channels_last];

    fn conv(lie: Layout, x: [u64; 4], weight: [u64; 4], window: ConvWindow) -> ConvDescriptor {
        let [x, weight] = [x, weight].map(|dims| lie(DType::F32, &dims).unwrap());
        ConvDescriptor::new(x, weight, window).unwrap()
    }

    /// The three products.
    fn products(forward: &ConvDescriptor) -> [Result<Product, Reason>; 3] {
        [
            forward.contraction().product(),
            forward.backward_data().unwrap().contraction().product(),
            forward.backward_weight().unwrap().contraction().product(),
        ]
    }

    fn extents(product: &Product) -> ([u64; 3], Vec<u64>, Vec<u64>) {
        ([product.m, product.n, product.k], product.batch.to_vec(), product.summed.to_vec())
    }

    #[test]
    fn a_kernel_of_one_element_is_a_product_of_each_image_or_of_all() {
        let [contiguous, last] =
            LAYOUTS.map(|lie| products(&conv(lie, [4, 6, 5, 7], [10, 6, 1, 1], ConvWindow::new())).map(Result::unwrap));
        let [forward, data, weight] = contiguous;
        assert_eq!(extents(&forward), ([35, 10, 6], vec![4], vec![]));
        assert_eq!((forward.left.rows, forward.left.cols, forward.left.batch[0]), (1, 35, 210));
        assert_eq!((forward.right.rows, forward.right.cols), (1, 6));
        assert_eq!((forward.out.rows, forward.out.cols, forward.out.batch[0]), (1, 35, 350));
        assert_eq!((extents(&data), data.right.rows, data.right.cols), (([35, 6, 10], vec![4], vec![]), 6, 1));
        assert_eq!(extents(&weight), ([6, 10, 35], vec![], vec![4]));
        assert_eq!((weight.left.summed[0], weight.right.summed[0], weight.out.cols), (210, 350, 6));
        let [forward, data, weight] = last;
        assert_eq!((extents(&forward), forward.left.rows, forward.out.rows), (([140, 10, 6], vec![], vec![]), 6, 10));
        assert_eq!(extents(&data), ([140, 6, 10], vec![], vec![]));
        assert_eq!((extents(&weight), weight.left.rows, weight.left.cols), (([6, 10, 140], vec![], vec![]), 1, 6));
    }

    #[test]
    fn so_is_a_kernel_of_the_whole_image_but_for_its_data() {
        for lie in LAYOUTS {
            let [forward, data, weight] = products(&conv(lie, [4, 6, 5, 7], [10, 6, 5, 7], ConvWindow::new()));
            assert_eq!(extents(&forward.unwrap()), ([4, 10, 210], vec![], vec![]));
            assert!(data.unwrap_err().to_string().contains("kernels of 1"));
            assert_eq!(extents(&weight.unwrap()), ([210, 10, 4], vec![], vec![]));
        }
    }

    #[test]
    fn what_windows_gather_otherwise_is_none() {
        let one = [10, 6, 1, 1];
        let window = ConvWindow::new;
        for (weight, window, words) in [
            ([10, 6, 3, 3], window(), "kernels of 1"),
            (one, window().stride(&[1, 2]), "stride 1"),
            (one, window().padding_per_side(&[[0, 0], [1, 0]]), "no padding"),
            (one, window().padding_per_side(&[[0, 1], [0, 0]]), "no padding"),
            ([10, 3, 1, 1], window().groups(2), "got 2 groups"),
        ] {
            let [forward, _, weight] = products(&conv(TensorDesc::contiguous, [4, 6, 5, 7], weight, window));
            for product in [forward, weight] {
                let reason = product.unwrap_err().to_string();
                assert!(reason.contains(words), "{reason}");
            }
        }
    }
}
