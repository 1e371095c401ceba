//! A cache of plans that the caller owns.

use std::any::Any;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};

use crate::backend::Device;
use crate::error::Result;
use crate::options::PlanOptions;
use crate::plan::{Descriptor, Plan};

/// Plans by (device, descriptor, options). When full, the plan unused for longest makes room. A request takes as long however many plans
/// are held.
///
/// A plan is cheap to hold: whoever runs one shape again and again keeps the plan itself.
///
/// ```
/// use baracuda_ops::{DType, Device, PlanCache, PlanOptions, RmsNormDescriptor, TensorDesc};
/// let (device, options, cache) = (Device::cpu(), PlanOptions::default(), PlanCache::with_capacity(64));
/// let descriptor = RmsNormDescriptor::new(TensorDesc::contiguous(DType::F32, &[8, 64])?, 1)?;
/// cache.plan(&device, &descriptor, &options)?;
/// cache.plan(&device, &descriptor, &options)?;
/// assert_eq!((cache.stats().hits, cache.stats().misses), (1, 1));
/// # Ok::<(), baracuda_ops::Error>(())
/// ```
#[derive(Debug)]
pub struct PlanCache {
    capacity: usize,
    hasher: RandomState,
    state: Mutex<State>,
}

/// What a cache has done.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Requests served from the cache.
    pub hits: u64,
    /// Requests that built a plan.
    pub misses: u64,
    /// Plans that made room.
    pub evictions: u64,
    /// Plans held.
    pub plans: usize,
}

/// The plans, in a doubly linked ring in the order of their last use. A plan that is used moves to the newest place; if the cache is full,
/// a new plan replaces the oldest, which lies next to the newest. Neither depends on how many plans are held.
#[derive(Debug, Default)]
struct State {
    entries: Vec<Entry>,
    /// The place of the entry used last; 0 if there is none.
    newest: usize,
    /// Places of entries by hash; entries of one bucket differ in their key.
    buckets: HashMap<u64, Vec<usize>>,
    stats: CacheStats,
    /// Entries looked at or linked.
    #[cfg(test)]
    steps: u64,
}

#[derive(Debug)]
struct Entry {
    request: Request,
    hash: u64,
    /// The place of the entry used next before this one; of the oldest, that of the newest.
    older: usize,
    /// The place of the entry used next after this one; of the newest, that of the oldest.
    newer: usize,
}

/// What was asked for, and its plan.
#[derive(Debug)]
struct Request {
    device: Device,
    options: PlanOptions,
    /// A `Plan<D>`, which holds the descriptor.
    plan: Box<dyn Any + Send>,
}

impl Request {
    fn get<D: Descriptor>(&self, device: &Device, descriptor: &D, options: &PlanOptions) -> Option<&Plan<D>> {
        let plan = self.plan.downcast_ref::<Plan<D>>()?;
        (self.device == *device && self.options == *options && plan.descriptor() == descriptor).then_some(plan)
    }
}

impl PlanCache {
    /// A cache of at most `capacity` plans; at least one.
    pub fn with_capacity(capacity: usize) -> Self {
        Self { capacity: capacity.max(1), hasher: RandomState::new(), state: Mutex::default() }
    }

    /// The cached plan, or a new one.
    ///
    /// # Errors
    /// As [`Plan::new`]; failures are not cached.
    pub fn plan<D: Descriptor>(&self, device: &Device, descriptor: &D, options: &PlanOptions) -> Result<Plan<D>> {
        let hash = self.hasher.hash_one((device, D::NAME, descriptor, options));
        if let Some(plan) = self.hit(hash, device, descriptor, options) {
            return Ok(plan);
        }
        // Built outside the lock: others may build or find meanwhile.
        let plan = Plan::new(device, descriptor.clone(), options)?;
        let request = Request { device: device.clone(), options: options.clone(), plan: Box::new(plan.clone()) };
        let mut state = self.lock();
        state.stats.misses += 1;
        let is_known = state.find(hash, |request| request.get(device, descriptor, options).is_some()).is_some();
        let left_over = if is_known { Some(request) } else { state.insert(hash, request, self.capacity) };
        // Dropping a plan may free memory of its device, for which nobody has to wait.
        drop(state);
        drop(left_over);
        Ok(plan)
    }

    /// What the cache has done so far.
    pub fn stats(&self) -> CacheStats {
        self.lock().stats
    }

    /// Drops every plan.
    pub fn clear(&self) {
        let mut state = self.lock();
        let cleared = State { stats: CacheStats { plans: 0, ..state.stats }, ..State::default() };
        let dropped = std::mem::replace(&mut *state, cleared);
        drop(state);
        drop(dropped);
    }

    fn hit<D: Descriptor>(&self, hash: u64, device: &Device, descriptor: &D, options: &PlanOptions) -> Option<Plan<D>> {
        let mut state = self.lock();
        let place = state.find(hash, |request| request.get(device, descriptor, options).is_some())?;
        state.touch(place);
        state.stats.hits += 1;
        state.entries[place].request.get(device, descriptor, options).cloned()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // No code runs under the lock that could leave the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The place of the entry with a hash whose request is the one.
    fn find(&mut self, hash: u64, is_it: impl Fn(&Request) -> bool) -> Option<usize> {
        let bucket = self.buckets.get(&hash)?;
        #[cfg(test)]
        {
            self.steps += bucket.len() as u64;
        }
        bucket.iter().copied().find(|&place| is_it(&self.entries[place].request))
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

    /// Adds a request, which is not known, as the newest. Returns the one that made room for it.
    fn insert(&mut self, hash: u64, request: Request, capacity: usize) -> Option<Request> {
        let place = if self.entries.len() < capacity { self.entries.len() } else { self.entries[self.newest].newer };
        self.buckets.entry(hash).or_default().push(place);
        let Some(oldest) = self.entries.get_mut(place) else {
            let (older, newer) = (self.newest, self.entries.get(self.newest).map_or(place, |entry| entry.newer));
            self.entries.push(Entry { request, hash, older, newer });
            self.link(older, place);
            self.link(place, newer);
            self.newest = place;
            self.stats.plans += 1;
            return None;
        };
        let evicted = std::mem::replace(&mut oldest.request, request);
        let hash_before = std::mem::replace(&mut oldest.hash, hash);
        self.newest = place;
        self.stats.evictions += 1;
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
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::{DType, LayerNormDescriptor, TensorDesc};

    fn rows(rows: u64) -> LayerNormDescriptor {
        LayerNormDescriptor::new(TensorDesc::contiguous(DType::F32, &[rows, 4]).unwrap(), 1).unwrap()
    }

    fn request(plan: impl Any + Send) -> Request {
        Request { device: Device::cpu(), options: PlanOptions::default(), plan: Box::new(plan) }
    }

    /// Finds a number that stands for a plan, or adds it. Returns the number that made room.
    fn ask(state: &mut State, hash: u64, number: u32, capacity: usize) -> Option<u32> {
        match state.find(hash, |request| request.plan.downcast_ref() == Some(&number)) {
            Some(place) => {
                state.touch(place);
                None
            }
            None => {
                let evicted = state.insert(hash, request(number), capacity)?;
                evicted.plan.downcast_ref().copied()
            }
        }
    }

    #[test]
    fn the_plan_unused_for_longest_makes_room() {
        let (device, options, cache) = (Device::cpu(), PlanOptions::default(), PlanCache::with_capacity(2));
        for n in [1, 2, 1, 3, 1, 2] {
            cache.plan(&device, &rows(n), &options).unwrap();
        }
        let stats = cache.stats();
        assert_eq!((stats.hits, stats.misses, stats.evictions, stats.plans), (2, 4, 2, 2));
    }

    #[test]
    fn plans_leave_in_the_order_of_their_last_use_whatever_their_hashes() {
        for (capacity, hashes) in [(1, 1), (2, 1), (3, 2), (7, 3), (8, u64::MAX)] {
            let (mut state, mut model, mut random) = (State::default(), Vec::new(), 1u32);
            for _ in 0..4000 {
                random = random.wrapping_mul(1664525).wrapping_add(1013904223);
                let number = (random >> 16) % 12;
                let evicted = ask(&mut state, u64::from(number) % hashes, number, capacity);
                model.retain(|&other| other != number);
                model.push(number);
                let expected = (model.len() > capacity).then(|| model.remove(0));
                assert_eq!(evicted, expected);
                assert_eq!((state.entries.len(), state.stats.plans), (model.len(), model.len()));
                assert_eq!(state.buckets.values().map(Vec::len).sum::<usize>(), model.len());
            }
        }
    }

    #[test]
    fn a_request_takes_as_many_steps_however_many_plans_are_held() {
        for capacity in [10, 10_000] {
            let mut state = State::default();
            let requests = 4 * capacity as u32;
            // Every third request finds a plan from the middle of the ring.
            for number in 0..requests {
                ask(&mut state, u64::from(number), number, capacity);
                if number % 2 == 1 && number as usize > capacity {
                    let held = number + 1 - capacity as u32 / 2;
                    ask(&mut state, u64::from(held), held, capacity);
                }
            }
            assert!(state.stats.evictions > u64::from(requests) / 2);
            assert!(state.steps <= 6 * u64::from(requests), "{} steps for {requests} requests", state.steps);
        }
    }

    #[test]
    fn plans_are_dropped_while_the_cache_serves_others() {
        struct Probe(Arc<PlanCache>, Arc<AtomicUsize>);

        impl Drop for Probe {
            fn drop(&mut self) {
                let is_free = self.0.state.try_lock().is_ok();
                self.1.fetch_add(usize::from(is_free), Ordering::Relaxed);
            }
        }

        let (cache, dropped) = (Arc::new(PlanCache::with_capacity(1)), Arc::new(AtomicUsize::new(0)));
        let hold = || drop(cache.lock().insert(7, request(Probe(cache.clone(), dropped.clone())), 1));
        hold();
        cache.plan(&Device::cpu(), &rows(1), &PlanOptions::default()).unwrap();
        assert_eq!((cache.stats().evictions, dropped.load(Ordering::Relaxed)), (1, 1));
        cache.clear();
        hold();
        cache.clear();
        assert_eq!((cache.stats().plans, dropped.load(Ordering::Relaxed)), (0, 2));
    }
}
