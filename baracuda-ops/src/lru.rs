//! Values of which the one unused for longest makes room for a new one.

use std::collections::HashMap;

/// Values in a doubly linked ring in the order of their last use. A value that is used moves to the newest place; if there are as many as the capacity, a new
/// one replaces the oldest, which lies next to the newest. Neither depends on how many are held.
#[derive(Debug)]
pub(crate) struct Lru<T> {
    capacity: usize,
    entries: Vec<Entry<T>>,
    /// The place of the entry used last; 0 if there is none.
    newest: usize,
    /// Places of entries by hash; entries of one bucket differ in their value.
    buckets: HashMap<u64, Vec<usize>>,
    /// Entries looked at or linked.
    #[cfg(test)]
    steps: u64,
}

#[derive(Debug)]
struct Entry<T> {
    value: T,
    hash: u64,
    /// The place of the entry used next before this one; of the oldest, that of the newest.
    older: usize,
    /// The place of the entry used next after this one; of the newest, that of the oldest.
    newer: usize,
}

impl<T> Lru<T> {
    /// At most `capacity` values; at least one.
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self {
            capacity: capacity.max(1),
            entries: Vec::new(),
            newest: 0,
            buckets: HashMap::new(),
            #[cfg(test)]
            steps: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Takes out every value, to be dropped where nobody waits.
    pub(crate) fn take(&mut self) -> Self {
        let capacity = self.capacity;
        std::mem::replace(self, Self::with_capacity(capacity))
    }

    /// The value with a hash that is the one, which becomes the newest.
    pub(crate) fn get(&mut self, hash: u64, is_it: impl Fn(&T) -> bool) -> Option<&T> {
        let bucket = self.buckets.get(&hash)?;
        #[cfg(test)]
        {
            self.steps += bucket.len() as u64;
        }
        let place = bucket.iter().copied().find(|&place| is_it(&self.entries[place].value))?;
        self.touch(place);
        Some(&self.entries[place].value)
    }

    /// Makes an entry the newest.
    fn touch(&mut self, place: usize) {
        let oldest = self.entries[self.newest].newer;
        if place != self.newest && place != oldest {
            let Entry { older, newer, .. } = self.entries[place];
            self.link(older, newer);
            self.link(self.newest, place);
            self.link(place, oldest);
        }
        // The oldest is in front once the ring is taken to begin there.
        self.newest = place;
    }

    /// Adds a value, which is not known, as the newest. Returns the one that made room for it.
    pub(crate) fn insert(&mut self, hash: u64, value: T) -> Option<T> {
        let place =
            if self.entries.len() < self.capacity { self.entries.len() } else { self.entries[self.newest].newer };
        self.buckets.entry(hash).or_default().push(place);
        let Some(oldest) = self.entries.get_mut(place) else {
            let (older, newer) = (self.newest, self.entries.get(self.newest).map_or(place, |entry| entry.newer));
            self.entries.push(Entry { value, hash, older, newer });
            self.link(older, place);
            self.link(place, newer);
            self.newest = place;
            return None;
        };
        let evicted = std::mem::replace(&mut oldest.value, value);
        let hash_before = std::mem::replace(&mut oldest.hash, hash);
        self.newest = place;
        self.forget(hash_before, place);
        Some(evicted)
    }

    /// Makes two entries neighbours in the ring.
    fn link(&mut self, older: usize, newer: usize) {
        #[cfg(test)]
        {
            self.steps += 1;
        }
        self.entries[older].newer = newer;
        self.entries[newer].older = older;
    }

    /// Takes a place out of its bucket: once, since the entry that takes the place may have the same hash.
    fn forget(&mut self, hash: u64, place: usize) {
        let Some(bucket) = self.buckets.get_mut(&hash) else { return };
        #[cfg(test)]
        {
            self.steps += bucket.len() as u64;
        }
        if let Some(at) = bucket.iter().position(|&other| other == place) {
            bucket.swap_remove(at);
        }
        if bucket.is_empty() {
            self.buckets.remove(&hash);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Finds a number, or adds it. Returns the number that made room.
    fn ask(held: &mut Lru<u32>, hash: u64, number: u32) -> Option<u32> {
        if held.get(hash, |&other| other == number).is_some() { None } else { held.insert(hash, number) }
    }

    #[test]
    fn values_leave_in_the_order_of_their_last_use_whatever_their_hashes() {
        for (capacity, hashes) in [(1, 1), (2, 1), (3, 2), (7, 3), (8, u64::MAX)] {
            let (mut held, mut model, mut random) = (Lru::with_capacity(capacity), Vec::new(), 1u32);
            for _ in 0..4000 {
                random = random.wrapping_mul(1664525).wrapping_add(1013904223);
                let number = (random >> 16) % 12;
                let evicted = ask(&mut held, u64::from(number) % hashes, number);
                model.retain(|&other| other != number);
                model.push(number);
                let expected = (model.len() > capacity).then(|| model.remove(0));
                assert_eq!(evicted, expected);
                assert_eq!(held.len(), model.len());
                assert_eq!(held.buckets.values().map(Vec::len).sum::<usize>(), model.len());
            }
        }
    }

    #[test]
    fn a_request_takes_as_many_steps_however_many_values_are_held() {
        for capacity in [10, 10_000] {
            let (mut held, mut evictions) = (Lru::with_capacity(capacity), 0);
            let requests = 4 * capacity as u32;
            // Every third request finds a value from the middle of the ring.
            for number in 0..requests {
                evictions += u32::from(ask(&mut held, u64::from(number), number).is_some());
                if number % 2 == 1 && number as usize > capacity {
                    let middle = number + 1 - capacity as u32 / 2;
                    ask(&mut held, u64::from(middle), middle);
                }
            }
            assert!(evictions > requests / 2);
            assert!(held.steps <= 6 * u64::from(requests), "{} steps for {requests} requests", held.steps);
        }
    }
}
