//! Elements move bit for bit: of random bytes, among them every NaN, on every device that is there.

use baracuda_ops::{
    Access, AnyDescriptor, Combine, ConcatDescriptor, CopyDescriptor, DType, Device, GatherDescriptor,
    IndexAddDescriptor, IndexSelectDescriptor, Mem, MemMut, NonzeroDescriptor, Operand, PadDescriptor, PadMode,
    PlanOptions, ScatterDescriptor, SearchSortedDescriptor, SortDescriptor, TensorDesc, TopKDescriptor, Workspace,
};
use baracuda_ops_tests::target::TARGETS;
use baracuda_ops_tests::values::offsets;
use fastrand::Rng;

/// The bytes of each element, in row-major order.
fn elements(desc: &TensorDesc, bytes: &[u8]) -> Vec<Vec<u8>> {
    let size = desc.dtype().size_bytes() as usize;
    offsets(desc).iter().map(|&at| bytes[at as usize * size..][..size].to_vec()).collect()
}

/// The elements of the outputs on a device, given the bytes of the inputs.
fn run(device: &Device, descriptor: &AnyDescriptor, inputs: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let plan = descriptor.plan(device, &PlanOptions::default()).unwrap();
    let mut inputs = inputs.iter();
    let buffers: Vec<_> = plan
        .slots()
        .iter()
        .map(|slot| {
            let buffer = device.alloc(slot.span_bytes.next_multiple_of(8)).unwrap();
            if slot.access == Access::In {
                device.write(&buffer, 0, inputs.next().unwrap()).unwrap();
            }
            buffer
        })
        .collect();
    let operand = |(slot, buffer): (&baracuda_ops::Slot, _)| -> Operand<'_> {
        match slot.access {
            Access::In => Mem::buffer(buffer, 0, slot.span_bytes).into(),
            _ => MemMut::buffer(buffer, 0, slot.span_bytes).into(),
        }
    };
    let mut operands: Vec<Operand<'_>> = plan.slots().iter().zip(&buffers).map(operand).collect();
    let workspace = device.alloc(plan.workspace().bytes).unwrap();
    plan.run(&mut device.queue(), &mut operands, Workspace::new(&workspace)).unwrap();
    drop(operands);
    let words = device.queue().download::<u32>(buffers.last().unwrap()).unwrap();
    elements(&plan.slots().last().unwrap().desc, bytemuck::cast_slice(&words))
}

#[test]
fn every_bit_of_an_element_moves() {
    let mut random = Rng::with_seed(31);
    for dtype in DType::ALL {
        let dense = |dims: &[u64]| TensorDesc::contiguous(dtype, dims).unwrap();
        let turned = dense(&[66, 48]).permute(&[1, 0]).unwrap();
        let odd = dense(&[7, 5, 3]).permute(&[2, 0, 1]).unwrap();
        let around =
            |mode| AnyDescriptor::new(PadDescriptor::new(dense(&[9, 12]), vec![2, 3], vec![4, 5], mode).unwrap());
        // A descriptor, and of which element of the inputs, one after the other, each element of the output has the bits.
        let mut cases: Vec<(AnyDescriptor, Vec<usize>)> = Vec::new();
        for x in [turned, odd, dense(&[1003])] {
            cases.push((AnyDescriptor::new(CopyDescriptor::new(x).unwrap()), (0..x.elements() as usize).collect()));
        }
        let flip = CopyDescriptor::slice(dense(&[6, 10]), vec![5, 9], vec![6, 10], vec![-1, -1]).unwrap();
        cases.push((AnyDescriptor::new(flip), (0..60).rev().collect()));
        let wrapped = |i: usize, before: usize, n: usize| (i + n - before) % n;
        let circular = (0..15 * 20).map(|at| wrapped(at / 20, 2, 9) * 12 + wrapped(at % 20, 3, 12)).collect();
        cases.push((around(PadMode::Circular), circular));
        let joined = ConcatDescriptor::new(vec![dense(&[5, 7]), dense(&[5, 9])], 1).unwrap();
        let of_parts = |at: usize| match (at / 16, at % 16) {
            (row, column) if column < 7 => row * 7 + column,
            (row, column) => 35 + row * 9 + column - 7,
        };
        cases.push((AnyDescriptor::new(joined), (0..80).map(of_parts).collect()));
        for (descriptor, origins) in cases {
            let inputs: Vec<_> = descriptor.slots().iter().filter(|slot| slot.access == Access::In).collect();
            let bytes: Vec<Vec<u8>> =
                inputs.iter().map(|slot| (0..slot.span_bytes).map(|_| random.u8(..)).collect()).collect();
            let given: Vec<Vec<u8>> =
                inputs.iter().zip(&bytes).flat_map(|(slot, bytes)| elements(&slot.desc, bytes)).collect();
            for target in TARGETS.iter() {
                let Ok(device) = &target.device else { continue };
                let found = run(device, &descriptor, &bytes);
                assert_eq!(found.len(), origins.len(), "{}: {}", target.name, descriptor.line());
                for (at, (found, &origin)) in found.iter().zip(&origins).enumerate() {
                    assert_eq!(found, &given[origin], "{}: {}, element {at}", target.name, descriptor.line());
                }
            }
        }
    }
}

#[test]
fn every_bit_of_an_element_that_an_index_names_moves() {
    let mut random = Rng::with_seed(37);
    for dtype in DType::ALL {
        for of in [DType::I64, DType::I32, DType::U32] {
            let dense = |dims: &[u64]| TensorDesc::contiguous(dtype, dims).unwrap();
            // A table, how it is asked, and of which element of it each element of the output has the bits.
            let mut cases: Vec<(AnyDescriptor, Vec<u32>, Vec<usize>)> = Vec::new();
            for cols in [5, 48, 1024] {
                let rows: Vec<u32> = (0..9).map(|_| random.u32(..7)).collect();
                let indices = TensorDesc::contiguous(of, &[9]).unwrap();
                let select = IndexSelectDescriptor::new(dense(&[7, cols as u64]), 0, indices).unwrap();
                let origins = rows.iter().flat_map(|&row| (0..cols).map(move |at| row as usize * cols + at)).collect();
                cases.push((AnyDescriptor::new(select), rows, origins));
            }
            let columns: Vec<u32> = (0..7 * 33).map(|_| random.u32(..40)).collect();
            let indices = TensorDesc::contiguous(of, &[7, 33]).unwrap();
            let gather = GatherDescriptor::new(dense(&[7, 40]), 1, indices).unwrap();
            let origins = columns.iter().enumerate().map(|(at, &column)| at / 33 * 40 + column as usize).collect();
            cases.push((AnyDescriptor::new(gather), columns, origins));
            for (descriptor, indices, origins) in cases {
                let x = &descriptor.slots()[0];
                let table: Vec<u8> = (0..x.span_bytes).map(|_| random.u8(..)).collect();
                let given = elements(&x.desc, &table);
                let low_word_first =
                    |&index: &u32| index.to_le_bytes().into_iter().chain(vec![0; of.size_bytes() as usize - 4]);
                let indices: Vec<u8> = indices.iter().flat_map(low_word_first).collect();
                for target in TARGETS.iter() {
                    let Ok(device) = &target.device else { continue };
                    let found = run(device, &descriptor, &[table.clone(), indices.clone()]);
                    assert_eq!(found.len(), origins.len(), "{}: {}", target.name, descriptor.line());
                    for (at, (found, &origin)) in found.iter().zip(&origins).enumerate() {
                        assert_eq!(found, &given[origin], "{}: {}, element {at}", target.name, descriptor.line());
                    }
                }
            }
        }
    }
}

#[test]
fn every_bit_of_an_element_that_goes_where_an_index_names_moves() {
    let mut random = Rng::with_seed(38);
    for dtype in DType::ALL {
        let of = [DType::I64, DType::I32, DType::U32][random.usize(..3)];
        let dense = |dims: &[u64]| TensorDesc::contiguous(dtype, dims).unwrap();
        // What is asked for, and for each element of y that of the source whose bits it has, if it is not the base's.
        let mut cases: Vec<(AnyDescriptor, Vec<u32>, Vec<Option<usize>>)> = Vec::new();
        for cols in [5, 48, 200] {
            let rows: Vec<u32> = (0..9).map(|_| random.u32(..7)).collect();
            let indices = TensorDesc::contiguous(of, &[9]).unwrap();
            let set = IndexAddDescriptor::new(dense(&[7, cols as u64]), 0, indices, Combine::Set);
            let mut origins = vec![None; 7 * cols];
            for (at, &row) in rows.iter().enumerate() {
                (0..cols).for_each(|col| origins[row as usize * cols + col] = Some(at * cols + col));
            }
            cases.push((AnyDescriptor::new(set.unwrap().base().unwrap()), rows, origins));
        }
        let columns: Vec<u32> = (0..7 * 33).map(|_| random.u32(..40)).collect();
        let indices = TensorDesc::contiguous(of, &[7, 33]).unwrap();
        let set = ScatterDescriptor::new(dense(&[7, 40]), 1, indices, Combine::Set).unwrap().base().unwrap();
        let mut origins = vec![None; 7 * 40];
        columns.iter().enumerate().for_each(|(at, &column)| origins[at / 33 * 40 + column as usize] = Some(at));
        cases.push((AnyDescriptor::new(set), columns, origins));
        for (descriptor, indices, origins) in cases {
            let [base, source] = [0, 1].map(|at: usize| {
                let slot = &descriptor.slots()[at];
                let bytes: Vec<u8> = (0..slot.span_bytes).map(|_| random.u8(..)).collect();
                (elements(&slot.desc, &bytes), bytes)
            });
            let low_word_first =
                |&index: &u32| index.to_le_bytes().into_iter().chain(vec![0; of.size_bytes() as usize - 4]);
            let indices: Vec<u8> = indices.iter().flat_map(low_word_first).collect();
            for target in TARGETS.iter() {
                let Ok(device) = &target.device else { continue };
                let found = run(device, &descriptor, &[base.1.clone(), source.1.clone(), indices.clone()]);
                for (at, (found, origin)) in found.iter().zip(&origins).enumerate() {
                    let expected = origin.map_or(&base.0[at], |origin| &source.0[origin]);
                    assert_eq!(found, expected, "{}: {}, element {at}", target.name, descriptor.line());
                }
            }
        }
    }
}

/// Whether the first element comes before the second in a rising order: a formula by values, other than that of the kernels.
fn is_before(dtype: DType, a: &[u8], b: &[u8]) -> bool {
    let integer = |bytes: &[u8]| match dtype {
        DType::I64 => i64::from_le_bytes(bytes.try_into().unwrap()),
        DType::I32 => i32::from_le_bytes(bytes.try_into().unwrap()).into(),
        DType::U32 => u32::from_le_bytes(bytes.try_into().unwrap()).into(),
        DType::I8 => i8::from_le_bytes([bytes[0]]).into(),
        DType::Bool => i64::from(bytes[0] != 0),
        _ => bytes[0].into(),
    };
    if !dtype.is_float() {
        return integer(a) < integer(b);
    }
    let float = |bytes: &[u8]| match dtype {
        DType::F64 => f64::from_le_bytes(bytes.try_into().unwrap()),
        DType::F32 => f32::from_le_bytes(bytes.try_into().unwrap()).into(),
        DType::F16 => half::f16::from_le_bytes(bytes.try_into().unwrap()).to_f64(),
        _ => half::bf16::from_le_bytes(bytes.try_into().unwrap()).to_f64(),
    };
    let (a, b) = (float(a), float(b));
    a < b || (!a.is_nan() && b.is_nan())
}

#[test]
fn every_bit_of_an_element_that_is_put_in_order_moves() {
    let mut random = Rng::with_seed(41);
    for dtype in DType::ALL.into_iter().filter(|dtype| !matches!(dtype, DType::F8E4M3 | DType::F8E5M2)) {
        for (length, k) in [(7, 3), (300, 40), (5000, 12), (5000, 3000)] {
            let x = TensorDesc::contiguous(dtype, &[2, length]).unwrap();
            // Bytes of few values, so that there are equal elements, zeros of both signs, infinities and NaN.
            let bytes: Vec<u8> =
                (0..x.span_bytes()).map(|_| [0, 0, 0x7f, 0x80, 0xff, 0xf0, random.u8(..)][random.usize(..7)]).collect();
            let given = elements(&x, &bytes);
            for falls in [false, true] {
                let sort = SortDescriptor::new(x, 1).unwrap();
                let top = TopKDescriptor::new(x, 1, k).unwrap();
                let (sort, top) = if falls { (sort.descending().unwrap(), top) } else { (sort, top.least().unwrap()) };
                let mut expected = given.clone();
                for line in expected.chunks_mut(length as usize) {
                    line.sort_by(|a, b| {
                        let (a, b) = if falls { (b, a) } else { (a, b) };
                        is_before(dtype, b, a).cmp(&is_before(dtype, a, b))
                    });
                }
                for target in TARGETS.iter() {
                    let Ok(device) = &target.device else { continue };
                    for (descriptor, kept) in
                        [(AnyDescriptor::new(sort.clone()), length), (AnyDescriptor::new(top.clone()), k)]
                    {
                        let found = run(device, &descriptor, std::slice::from_ref(&bytes));
                        let lines = expected.chunks(length as usize);
                        let expected: Vec<_> = lines.flat_map(|line| &line[..kept as usize]).cloned().collect();
                        assert!(found == expected, "{}: {}", target.name, descriptor.line());
                    }
                }
            }
        }
    }
}

#[test]
fn every_bit_but_the_sign_of_a_number_tells_it_from_0() {
    let mut random = Rng::with_seed(43);
    for dtype in DType::ALL {
        for x in [
            TensorDesc::contiguous(dtype, &[1003]).unwrap(),
            TensorDesc::contiguous(dtype, &[37, 30]).unwrap().permute(&[1, 0]).unwrap(),
        ] {
            let size = dtype.size_bytes() as usize;
            // Mostly one bit of an element or none; of others random bytes.
            let mut bytes = vec![0u8; x.span_bytes() as usize];
            for element in bytes.chunks_mut(size) {
                match random.usize(..4) {
                    0 => element.iter_mut().for_each(|byte| *byte = random.u8(..)),
                    1 | 2 => element[random.usize(..size)] = 1 << random.u32(..8),
                    _ => {}
                }
            }
            let is_there = |element: &Vec<u8>| {
                let (last, others) = element.split_last().unwrap();
                let last = if dtype.is_float() { last & 0x7f } else { *last };
                last != 0 || others.iter().any(|&byte| byte != 0)
            };
            let given = elements(&x, &bytes);
            let mut expected: Vec<i64> =
                (0..given.len()).filter(|&at| is_there(&given[at])).map(|at| at as i64).collect();
            expected.resize(given.len(), -1);
            let descriptor = AnyDescriptor::new(NonzeroDescriptor::new(x).unwrap());
            for target in TARGETS.iter() {
                let Ok(device) = &target.device else { continue };
                let found = run(device, &descriptor, std::slice::from_ref(&bytes));
                let found: Vec<i64> = found.iter().map(|at| i64::from_le_bytes(at[..].try_into().unwrap())).collect();
                assert!(found == expected, "{}: {}", target.name, descriptor.line());
            }
        }
    }
}

#[test]
fn searches_among_elements_in_no_order_stay_among_them() {
    let mut random = Rng::with_seed(47);
    for dtype in DType::ALL.into_iter().filter(|dtype| !matches!(dtype, DType::F8E4M3 | DType::F8E5M2)) {
        for length in [1, 2, 77, 1024] {
            let sorted = TensorDesc::contiguous(dtype, &[3, length]).unwrap();
            let values = TensorDesc::contiguous(dtype, &[3, 50]).unwrap();
            let mut bytes = |desc: &TensorDesc| (0..desc.span_bytes()).map(|_| random.u8(..)).collect::<Vec<u8>>();
            let inputs = [bytes(&sorted), bytes(&values)];
            let search = SearchSortedDescriptor::new(sorted, values).unwrap();
            for search in [search.clone(), search.right().unwrap()] {
                let descriptor = AnyDescriptor::new(search);
                for target in TARGETS.iter() {
                    let Ok(device) = &target.device else { continue };
                    let found = run(device, &descriptor, &inputs);
                    let is_inside = |at: &Vec<u8>| u64::from_le_bytes(at[..].try_into().unwrap()) <= length;
                    assert!(found.iter().all(is_inside), "{}: {}", target.name, descriptor.line());
                }
            }
        }
    }
}
