//! Long sums of products in short chains of additions (docs/numerics.md, Budgets).

use std::ops::Add;

/// The most additions of a chain: products of a first one, sums of such chains of the next one, and so on.
pub(in crate::ops) const CHAIN: usize = 64;

/// The sums of some elements, which grow together. The first level is a chain of products, the second one of sums of the first, and so on. An element
/// takes memory for as many levels as its number of products asks for.
pub(in crate::ops) struct Chains<T> {
    elements: usize,
    levels: Vec<Level<T>>,
}

struct Level<T> {
    sums: Vec<T>,
    /// What was added up since the level began anew.
    count: usize,
}

impl<T: Copy + Default + Add<Output = T>> Chains<T> {
    pub(in crate::ops) fn new(elements: usize) -> Self {
        Self { elements, levels: Vec::new() }
    }

    /// Adds the sum of up to [`CHAIN`] products to each element. `add` is given the sums, and whether it is to overwrite them.
    pub(in crate::ops) fn add(&mut self, add: impl FnOnce(&mut [T], bool)) {
        self.make_room(0);
        let Level { sums, count } = &mut self.levels[0];
        add(sums, *count == 0);
        *count += 1;
    }

    /// Moves the sums of a level that is full to the next one.
    fn make_room(&mut self, level: usize) {
        if level == self.levels.len() {
            self.levels.push(Level { sums: vec![T::default(); self.elements], count: 0 });
        }
        if self.levels[level].count < CHAIN {
            return;
        }
        self.make_room(level + 1);
        let [full, next] = &mut self.levels[level..level + 2] else { return };
        next.take(full);
    }

    /// The sums.
    pub(in crate::ops) fn total(self) -> Vec<T> {
        let add = |mut low: Level<T>, mut high: Level<T>| {
            high.take(&mut low);
            high
        };
        self.levels.into_iter().reduce(add).map_or_else(|| vec![T::default(); self.elements], |level| level.sums)
    }
}

impl<T: Copy + Add<Output = T>> Level<T> {
    /// Adds the sums of another level, which begins anew.
    fn take(&mut self, from: &mut Self) {
        if self.count == 0 {
            self.sums.copy_from_slice(&from.sums);
        } else {
            self.sums.iter_mut().zip(&from.sums).for_each(|(sum, part)| *sum = *sum + *part);
        }
        self.count += 1;
        from.count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sum of `count` numbers, and the levels that it took.
    fn sum(count: u32) -> (f64, usize) {
        let mut chains = Chains::new(1);
        for i in 0..count {
            chains.add(|sums, is_first| {
                sums[0] = f64::from(i) + if is_first { 0.0 } else { sums[0] };
            });
        }
        let levels = chains.levels.len();
        (chains.total()[0], levels)
    }

    #[test]
    fn every_level_begins_anew_once_it_is_full() {
        for (count, levels) in
            [(0, 0), (1, 1), (64, 1), (65, 2), (4096, 2), (4097, 2), (4160, 2), (4161, 3), (300_000, 4)]
        {
            let exact = f64::from(count) * (f64::from(count) - 1.0) / 2.0;
            assert_eq!(sum(count), (exact.max(0.0), levels), "{count} numbers");
        }
    }
}
