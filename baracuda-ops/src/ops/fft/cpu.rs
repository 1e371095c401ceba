//! The reference: the sum of the header in f64, with what rounding loses, and roots whose angles are reduced in integers. It takes n steps for each result.

use super::geometry::Transform;
use super::roots::{Complex, root};
use super::{Geometry, Valid, forward};
use crate::backend::cpu::{Operands, Outcome, Sum, Tensor, held, threads};
use crate::kernel::Accepted;
use crate::narrow::to_usize;

pub(super) fn accept(valid: &Valid) -> Accepted<'_> {
    Ok(valid.on_cpu(run).batch_invariant())
}

/// An element of x as a complex number of the line: of half a spectrum what the other half adds is in its weight.
#[inline(always)]
pub(super) fn load(geometry: &Geometry, x: &Tensor<'_>, first: u64, position: u64) -> Complex {
    let at = first + position * geometry.steps[1];
    match geometry.transform {
        Transform::FromReal => Complex { re: x.load(at), im: 0.0 },
        Transform::Complex => Complex { re: x.load(at), im: x.load(at + geometry.parts[1]) },
        Transform::ToReal if position >= geometry.bins() => Complex::default(),
        Transform::ToReal if geometry.is_real_bin(position) => Complex { re: x.load(at), im: 0.0 },
        Transform::ToReal => {
            let inner = geometry.inner.get();
            Complex { re: inner * x.load(at), im: inner * x.load(at + geometry.parts[1]) }
        }
    }
}

/// Writes a result of a line, scaled.
///
/// # Safety
/// No other thread uses that element meanwhile.
#[inline(always)]
pub(super) unsafe fn store(geometry: &Geometry, y: &Tensor<'_>, first: u64, position: u64, value: Complex) {
    let at = first + position * geometry.steps[0];
    let mut scale = geometry.scale.get();
    if geometry.transform == Transform::FromReal {
        scale *= geometry.weight(position);
    }
    // SAFETY: the caller is alone at this element.
    unsafe {
        y.store(at, scale * value.re);
        if geometry.transform != Transform::ToReal {
            y.store(at + geometry.parts[0], scale * value.im);
        }
    }
}

fn run(valid: &Valid, operands: &Operands<'_>) -> Outcome {
    let geometry = &valid.derived;
    let (Some(x), Some(y)) = (operands.get(forward::X), operands.get(forward::Y)) else { return Ok(()) };
    let (walk, points) = (geometry.lines(), geometry.points);
    let roots = held(points, (0..points).map(|part| root(part, points)))?;
    let (lines, results) = (walk.elements(), geometry.results());
    let terms = if geometry.transform == Transform::ToReal { geometry.bins() } else { points };
    let tasks = lines * results;
    threads::for_each(tasks, tasks.saturating_mul(terms), |task| {
        let (line, position) = (task / results, task % results);
        let [to, from] = [0, 1].map(|operand| walk.offset(operand, line));
        let (mut re, mut im) = (Sum::default(), Sum::default());
        let mut part = 0;
        for term in 0..terms {
            let w = roots[to_usize(part)];
            let w = if geometry.is_inverse { w.conjugate() } else { w };
            let value = load(geometry, &x, from, term);
            re.add(value.re * w.re);
            re.add(-value.im * w.im);
            im.add(value.re * w.im);
            im.add(value.im * w.re);
            // Both are below the number of points, which is at most that of bytes of a tensor.
            part = (part + position) % points;
        }
        // SAFETY: each result is of one task.
        unsafe { store(geometry, &y, to, position, Complex { re: re.total(), im: im.total() }) };
    });
    Ok(())
}
