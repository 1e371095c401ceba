//! Products of a warpgroup (`wgmma`). Each of its four warps computes its own 16 of the 64 rows, at the time when it waits for them.

use super::{Group, LANES};
use crate::program::{Shape, Space};
use crate::tensor_map::{CHUNK_BYTES, swizzle};

/// Rows of a warp, and rows that lie together where a factor lies across k.
const WARP_ROWS: usize = 16;
const BLOCK_ROWS: u64 = 64;
/// Bytes of a line, and lines of an atom.
const LINE_BYTES: u64 = 128;
const ATOM_LINES: u64 = 8;

/// A product that a warp has begun, in one of its groups.
pub(super) struct Product {
    number: u32,
    group: u32,
    left: u64,
    right: u64,
    adds: bool,
}

/// The descriptor of a factor in shared memory, in bytes.
struct Layout {
    start: u64,
    /// From a block of rows to the next, where the factor lies across k.
    leading: u64,
    /// From an atom of eight lines to the next.
    stride: u64,
    is_across: bool,
}

impl Layout {
    fn new(descriptor: u64, is_across: bool) -> Result<Self, String> {
        let bytes = |shift: u32| (descriptor >> shift & 0x3fff) * 16;
        // Lines of 128 bytes, swizzled, in atoms that begin at multiples of 1024 bytes.
        let (swizzle, base) = (descriptor >> 62, descriptor >> 49 & 7);
        if swizzle != 1 || base != 0 {
            return Err(format!("a factor of swizzle {swizzle} from line {base} on"));
        }
        Ok(Self { start: bytes(0), leading: bytes(16), stride: bytes(32), is_across })
    }

    /// The place of the chunk with row `row` and number `k` of k.
    fn chunk(&self, row: u64, k: u64, element_bytes: u64) -> u64 {
        let (line, inside) = if self.is_across { (k, row % BLOCK_ROWS) } else { (row, k) };
        let block = if self.is_across { row / BLOCK_ROWS * self.leading } else { 0 };
        let at = self.start + block + line / ATOM_LINES * self.stride + line % ATOM_LINES * LINE_BYTES;
        swizzle(at + inside * element_bytes, LINE_BYTES)
    }
}

impl Group<'_> {
    /// Notes a product. Its sums change when it is waited for.
    pub(super) fn begin_product(
        &mut self,
        block: usize,
        warp: usize,
        number: u32,
        active: u32,
    ) -> Result<(), (usize, String)> {
        let product = &self.launch.program.products[number as usize];
        let this = &mut self.blocks[block].warps[warp];
        if active != u32::MAX {
            return Err((active.trailing_zeros() as usize, "not all lanes take part".into()));
        }
        let adds = match this.predicates[product.adds as usize].get() {
            0 => false,
            u32::MAX => true,
            _ => return Err((0, "lanes do not agree whether sums are added to".into())),
        };
        let [left, right] = [product.left, product.right].map(|factor| this.registers[factor as usize][0].get());
        this.products.push(Product { number, group: this.product_groups, left, right, adds });
        Ok(())
    }

    /// Computes the products in all but the last `groups` groups.
    pub(super) fn multiply_due(&mut self, block: usize, warp: usize, groups: u32) -> Result<(), (usize, String)> {
        let this = &mut self.blocks[block].warps[warp];
        let last = this.product_groups;
        let due: Vec<Product> = this.products.extract_if(.., |product| product.group + groups < last).collect();
        due.iter().try_for_each(|product| self.multiply_group(block, warp, product)).map_err(|e| (0, e))
    }

    /// Exact products, summed in f64 and rounded once, where the hardware rounds more often.
    fn multiply_group(&mut self, block: usize, warp: usize, of: &Product) -> Result<(), String> {
        let product = &self.launch.program.products[of.number as usize];
        let columns = 2 * product.sums.len();
        let [left_across, right_across] = product.across;
        let first_row = warp % 4 * WARP_ROWS;
        let left = Layout::new(of.left, left_across)?;
        let left = self.factor(block, &left, first_row, WARP_ROWS, product.shape)?;
        let right = self.factor(block, &Layout::new(of.right, right_across)?, 0, columns, product.shape)?;

        let this = &self.blocks[block].warps[warp];
        let place = |lane: usize, i: usize| (lane / 4 + 8 * (i / 2 % 2)) * columns + 8 * (i / 4) + lane % 4 * 2 + i % 2;
        let mut sums = vec![0.0; WARP_ROWS * columns];
        if of.adds {
            for (i, &register) in product.sums.iter().enumerate() {
                for (lane, cell) in this.registers[register as usize].iter().enumerate() {
                    sums[place(lane, i)] = f64::from(f32::from_bits(cell.get() as u32));
                }
            }
        }
        for (left, right) in left.chunks_exact(WARP_ROWS).zip(right.chunks_exact(columns)) {
            for (&left, sums) in left.iter().zip(sums.chunks_exact_mut(columns)) {
                for (sum, &right) in sums.iter_mut().zip(right) {
                    *sum += left * right;
                }
            }
        }
        for (i, &register) in product.sums.iter().enumerate() {
            for lane in 0..LANES {
                let sum = sums[place(lane, i)] as f32;
                this.registers[register as usize][lane].set(sum.to_bits().into());
            }
        }
        Ok(())
    }

    /// `count` rows of a factor: for each k all rows.
    fn factor(
        &mut self,
        block: usize,
        layout: &Layout,
        first: usize,
        count: usize,
        shape: Shape,
    ) -> Result<Vec<f64>, String> {
        let (element_bytes, depth) = if shape == Shape::Tf32 { (4, 8) } else { (2, 16) };
        let per_chunk = (CHUNK_BYTES / element_bytes) as usize;
        // Rows and k of a chunk.
        let [rows, ks] = if layout.is_across { [per_chunk, 1] } else { [1, per_chunk] };
        let mut values = vec![0.0; depth * count];
        for k in (0..depth).step_by(ks) {
            for row in (0..count).step_by(rows) {
                let at = layout.chunk((first + row) as u64, k as u64, element_bytes);
                let chunk = self.place(block, Space::Shared, at, CHUNK_BYTES, CHUNK_BYTES)?;
                // SAFETY: `place` has found the bytes in shared memory.
                let bytes = unsafe { chunk.cast::<[u8; CHUNK_BYTES as usize]>().read() };
                for (i, bytes) in bytes.chunks_exact(element_bytes as usize).enumerate() {
                    let (row, k) = if layout.is_across { (row + i, k) } else { (row, k + i) };
                    values[k * count + row] = element(shape, bytes);
                }
            }
        }
        Ok(values)
    }
}

/// A tensor core reads 10 bits of fraction of a tf32 number.
fn element(shape: Shape, bytes: &[u8]) -> f64 {
    let half = || u16::from_le_bytes([bytes[0], bytes[1]]);
    match shape {
        Shape::F16 => half::f16::from_bits(half()).to_f64(),
        Shape::Bf16 => f64::from(f32::from_bits(u32::from(half()) << 16)),
        Shape::Tf32 | Shape::Tf32Short => {
            let bits = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            f64::from(f32::from_bits(bits & !0x1fff))
        }
    }
}
