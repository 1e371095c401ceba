//! Threads that help with large runs.
//!
//! A run computes on the thread that calls it. Where it is large, the library's own threads take some of its tasks, and the caller, once
//! none is left, sleeps until they are done. It never executes anything else meanwhile: a caller's task in a thread pool must not find
//! another of that pool's tasks begun in its middle, as happens where runs compute in the caller's pool. Nor does a run rely on helpers:
//! it ends where all of them are busy, where none could be started, and where a helper itself calls it.

use super::{Shortage, held, room, settle};
use crate::narrow::to_usize;
use std::any::Any;
use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::{io, ptr, thread};

/// Fewest elements that a helper is called for: 10 to 20 us of work, about what it takes a helper to begin.
const GRAIN: u64 = 1024;

/// How often a thread looks for work, and lets others run, before it sleeps. This takes tens of microseconds, in which one run often follows another
/// and the last part of a run ends. To be woken takes about as long.
const LOOKS: usize = 100;

/// The most threads that a run of some queue may have, the caller's among them. All limits are equal: memory and plans are the same, and so are
/// the results.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit(u64);

impl Limit {
    pub(crate) const NONE: Self = Self(u64::MAX);

    pub(crate) fn new(threads: NonZeroUsize) -> Self {
        Self(threads.get() as u64)
    }

    /// What `work` computes has no more threads than this.
    pub(crate) fn hold<T>(self, work: impl FnOnce() -> T) -> T {
        struct Restored(Limit);
        impl Drop for Restored {
            fn drop(&mut self) {
                LIMIT.set(self.0);
            }
        }
        let _restored = Restored(LIMIT.replace(self));
        work()
    }
}

impl PartialEq for Limit {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Limit {}

impl Hash for Limit {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

thread_local! {
    /// That of the run which this thread computes.
    static LIMIT: Cell<Limit> = const { Cell::new(Limit::NONE) };
}

/// The threads of the process: as many as it may run at once.
fn available() -> u64 {
    static COUNT: LazyLock<u64> = LazyLock::new(|| thread::available_parallelism().map_or(1, |all| all.get() as u64));
    *COUNT
}

/// The threads that a large run may have, the caller's among them.
pub(crate) fn count() -> u64 {
    available().min(LIMIT.get().0)
}

/// Does `tasks` tasks of `elements` elements together, in any order and on several threads if there are many.
pub(crate) fn for_each(tasks: u64, elements: u64, task: impl Fn(u64) + Sync) {
    /// Waits for work from the first large run to the end of the process.
    static HELPERS: Helpers = Helpers::new();
    static STARTED: LazyLock<usize> = LazyLock::new(|| {
        let start = || thread::Builder::new().name("baracuda-ops".into()).spawn(|| HELPERS.help()).map(drop);
        count_started(to_usize(available() - 1), start)
    });
    let useful = (elements / GRAIN).min(tasks).min(LIMIT.get().0).saturating_sub(1);
    // Small runs start no threads.
    let helpers = if useful == 0 { 0 } else { (*STARTED).min(usize::try_from(useful).unwrap_or(usize::MAX)) };
    HELPERS.for_each(helpers, tasks, task);
}

/// As [`for_each`], with tasks that may fail. After the first that does none is begun.
pub(crate) fn try_for_each<E: Send + Sync>(
    tasks: u64,
    elements: u64,
    task: impl Fn(u64) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let failed = OnceLock::new();
    for_each(tasks, elements, |i| {
        if failed.get().is_none()
            && let Err(error) = task(i)
        {
            failed.get_or_init(|| error);
        }
    });
    failed.into_inner().map_or(Ok(()), Err)
}

/// The results of some tasks, which are done as [`try_for_each`] does them.
pub(crate) fn map<T: Send + Sync, E: From<Shortage> + Send + Sync>(
    tasks: u64,
    elements: u64,
    task: impl Fn(u64) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let mut results: Vec<OnceLock<T>> = room(tasks)?;
    results.resize_with(to_usize(tasks), OnceLock::new);
    try_for_each(tasks, elements, |i| {
        let result = task(i)?;
        results[to_usize(i)].get_or_init(|| result);
        Ok::<_, E>(())
    })?;
    Ok(held(tasks, results.into_iter().filter_map(OnceLock::into_inner))?)
}

/// Starts up to `wanted` threads. If one cannot be started, runs have the helpers that were started before it.
fn count_started(wanted: usize, mut start: impl FnMut() -> io::Result<()>) -> usize {
    let mut failed = None;
    let started = (0..wanted).take_while(|_| start().map_err(|error| failed = Some(error)).is_ok()).count();
    if let Some(error) = failed {
        tracing::warn!(target: "baracuda_ops", %error, started, wanted, "a thread for runs on the CPU could not be started");
    }
    started
}

/// What helpers and the runs that they help tell each other.
struct Helpers {
    /// The runs that have helpers or want them.
    runs: Mutex<Vec<Run>>,
    /// Whether one of these runs wants helpers: read without the lock.
    is_wanted: AtomicBool,
    /// A run wants helpers.
    wanted: Condvar,
    /// The last helper has left a run.
    left: Condvar,
}

struct Run {
    work: Work,
    /// Helpers that may still come.
    wanted: usize,
    /// Helpers that are at work.
    present: usize,
    /// What a helper panicked with.
    panic: Option<Box<dyn Any + Send>>,
}

/// Does tasks of a run until none is left; any number of threads may call it at once. Its address tells runs apart.
#[derive(Clone, Copy)]
struct Work(*const (dyn Fn() + Sync));

// SAFETY: it points to something `Sync`. That this is alive where it is called is for `Helpers::help` to prove.
unsafe impl Send for Work {}

impl Helpers {
    const fn new() -> Self {
        Self {
            runs: Mutex::new(Vec::new()),
            is_wanted: AtomicBool::new(false),
            wanted: Condvar::new(),
            left: Condvar::new(),
        }
    }

    /// Nothing under the lock can panic. The lock is held for far less time than it takes to wake a thread, and all helpers want it when a run begins
    /// and when it ends: so they try it several times before they sleep.
    fn runs(&self) -> MutexGuard<'_, Vec<Run>> {
        for _ in 0..LOOKS {
            match self.runs.try_lock() {
                Ok(runs) => return runs,
                Err(TryLockError::Poisoned(error)) => return error.into_inner(),
                Err(TryLockError::WouldBlock) => thread::yield_now(),
            }
        }
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn for_each(&self, helpers: usize, tasks: u64, task: impl Fn(u64) + Sync) {
        if helpers == 0 {
            return (0..tasks).for_each(task);
        }
        // Neighbouring tasks go to one thread, since what they write may share cache lines. The parts shrink, so that all threads end together.
        let (next, threads) = (AtomicU64::new(0), helpers as u64 + 1);
        let part = |first: u64| ((tasks - first) / (2 * threads)).max(1);
        let after = |first: u64| (first < tasks).then(|| first + part(first));
        let limit = LIMIT.get();
        let part_after_part = || {
            limit.hold(|| {
                while let Ok(first) = next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, after) {
                    (first..first + part(first)).for_each(&task);
                }
            });
            settle();
        };
        self.share(helpers, &part_after_part);
    }

    /// Calls `work` here and on up to `helpers` other threads. Panics as `work` does, once all of them have left it.
    fn share(&self, helpers: usize, work: &(dyn Fn() + Sync)) {
        // SAFETY: only the lifetime changes, which raw pointers do not hold anyone to.
        let here =
            Work(unsafe { std::mem::transmute::<*const (dyn Fn() + Sync + '_), *const (dyn Fn() + Sync)>(work) });
        let mut runs = self.runs();
        runs.push(Run { work: here, wanted: helpers, present: 0, panic: None });
        self.tell(&runs);
        drop(runs);
        self.call(helpers);
        let outcome = catch_unwind(AssertUnwindSafe(work));
        let panic = self.close(here);
        if let Some(panic) = panic.or(outcome.err()) {
            resume_unwind(panic);
        }
    }

    /// Notified whenever a run comes or changes what it wants, with the lock held, which orders the notification.
    fn tell(&self, runs: &[Run]) {
        self.is_wanted.store(runs.iter().any(|run| run.wanted > 0), Ordering::Relaxed);
    }

    /// Wakes two helpers, each of which wakes two more: waking all would keep one thread busy for long.
    fn call(&self, helpers: usize) {
        (0..helpers.min(2)).for_each(|_| self.wanted.notify_one());
    }

    /// Lets no more helpers come to a run, waits until none is present, and returns what one panicked with. The wait is on a `Condvar`:
    /// parking the thread could take a wake-up that its executor waits for.
    fn close(&self, work: Work) -> Option<Box<dyn Any + Send>> {
        let (mut runs, mut looks) = (self.runs(), 0);
        loop {
            let at = runs.iter().position(|run| ptr::addr_eq(run.work.0, work.0))?;
            runs[at].wanted = 0;
            self.tell(&runs);
            if runs[at].present == 0 {
                return runs.swap_remove(at).panic;
            }
            looks += 1;
            runs = if looks < LOOKS {
                drop(runs);
                thread::yield_now();
                self.runs()
            } else {
                self.left.wait(runs).unwrap_or_else(PoisonError::into_inner)
            };
        }
    }

    /// What a helper does.
    fn help(&self) -> ! {
        let mut runs = self.runs();
        loop {
            let Some(run) = runs.iter_mut().find(|run| run.wanted > 0) else {
                runs = self.idle(runs);
                continue;
            };
            run.wanted -= 1;
            run.present += 1;
            let (work, more) = (run.work, run.wanted);
            self.tell(&runs);
            drop(runs);
            self.call(more);
            // SAFETY: `share` borrows what this points to until `close` has found the run without a helper present and removed it, both
            // under the lock. This helper counts as present, since it found the run in the list under the lock, until the lock is held
            // again below, and does not use the pointer after.
            let outcome = catch_unwind(AssertUnwindSafe(|| unsafe { (*work.0)() }));
            runs = self.runs();
            let Some(run) = runs.iter_mut().find(|run| ptr::addr_eq(run.work.0, work.0)) else { continue };
            run.present -= 1;
            // A thread that leaves a run leaves no task behind, or has panicked.
            run.wanted = 0;
            if let Err(panic) = outcome {
                run.panic.get_or_insert(panic);
            }
            if run.present == 0 {
                self.left.notify_all();
            }
            self.tell(&runs);
        }
    }

    /// Waits until a run may want helpers.
    fn idle<'h>(&'h self, runs: MutexGuard<'h, Vec<Run>>) -> MutexGuard<'h, Vec<Run>> {
        drop(runs);
        for _ in 0..LOOKS {
            if self.is_wanted.load(Ordering::Relaxed) {
                return self.runs();
            }
            thread::yield_now();
        }
        let nobody = |runs: &mut Vec<Run>| runs.iter().all(|run| run.wanted == 0);
        self.wanted.wait_while(self.runs(), nobody).unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Barrier;
    use std::time::{Duration, Instant};

    use super::*;

    /// Helpers of a test's own, for as long as the process lives.
    fn helpers(count: usize) -> &'static Helpers {
        let helpers: &'static Helpers = Box::leak(Box::new(Helpers::new()));
        let started = count_started(count, || thread::Builder::new().spawn(|| helpers.help()).map(drop));
        assert_eq!(started, count);
        helpers
    }

    /// How often each of some tasks is done.
    fn times_done(helpers: &Helpers, count: usize, tasks: u64) -> Vec<u64> {
        let done: Vec<AtomicU64> = (0..tasks).map(|_| AtomicU64::new(0)).collect();
        helpers.for_each(count, tasks, |i| {
            done[i as usize].fetch_add(1, Ordering::Relaxed);
        });
        done.into_iter().map(AtomicU64::into_inner).collect()
    }

    #[test]
    fn every_task_is_done_once() {
        let four = helpers(4);
        for tasks in [1, 2, 3, 40, 41, 10_007] {
            assert_eq!(times_done(four, 4, tasks), vec![1; tasks as usize]);
        }
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..50).for_each(|_| assert_eq!(times_done(four, 4, 1001), vec![1; 1001])));
            }
        });
        assert!(four.runs().is_empty());
        assert_eq!(map(5, u64::MAX, |i| Ok::<_, Shortage>(i * i)), Ok(vec![0, 1, 4, 9, 16]));
    }

    #[test]
    fn helpers_take_part() {
        let two = helpers(2);
        // Three tasks that wait for each other need three threads.
        let (meeting, threads) = (Barrier::new(3), Mutex::new(HashSet::new()));
        two.for_each(2, 3, |_| {
            threads.lock().unwrap().insert(thread::current().id());
            meeting.wait();
        });
        let threads = threads.into_inner().unwrap();
        assert!(threads.len() == 3 && threads.contains(&thread::current().id()));
    }

    #[test]
    fn small_runs_stay_on_the_calling_thread() {
        let here = thread::current().id();
        for_each(1000, 2 * GRAIN - 1, |_| assert_eq!(thread::current().id(), here));
    }

    #[test]
    fn a_limit_holds_for_runs_inside_it() {
        let one = Limit::new(NonZeroUsize::MIN);
        let here = thread::current().id();
        one.hold(|| {
            assert_eq!(count(), 1);
            for_each(1000, u64::MAX, |_| assert_eq!(thread::current().id(), here));
        });
        assert_eq!(count(), available());
        // Helpers of a run have its limit, too.
        let two = helpers(2);
        let limits = Mutex::new(Vec::new());
        let meeting = Barrier::new(3);
        Limit::new(NonZeroUsize::new(3).unwrap()).hold(|| {
            two.for_each(2, 3, |_| {
                meeting.wait();
                limits.lock().unwrap().push(LIMIT.get().0);
            });
        });
        assert_eq!(limits.into_inner().unwrap(), [3; 3]);
    }

    #[test]
    fn runs_end_without_helpers() {
        let refuse = || Err(io::Error::from(io::ErrorKind::WouldBlock));
        assert_eq!(count_started(3, refuse), 0);
        // Wanted and promised, but nobody comes.
        assert_eq!(times_done(&Helpers::new(), 2, 100), vec![1; 100]);
    }

    #[test]
    fn a_helper_that_runs_does_not_wait_for_itself() {
        let one = helpers(1);
        let meeting = Barrier::new(2);
        one.for_each(1, 2, |_| {
            // Both threads are here: each does its inner run alone.
            meeting.wait();
            assert_eq!(times_done(one, 1, 64), vec![1; 64]);
        });
    }

    #[test]
    fn panics_reach_the_caller_when_nobody_uses_its_tasks() {
        let two = helpers(2);
        for who in 0..3u64 {
            let (meeting, ended) = (Barrier::new(3), AtomicU64::new(0));
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                two.for_each(2, 3, |i| {
                    meeting.wait();
                    assert!(i != who, "task {i}");
                    thread::sleep(Duration::from_millis(20));
                    ended.fetch_add(1, Ordering::Relaxed);
                });
            }));
            let panic = *outcome.unwrap_err().downcast::<String>().unwrap();
            assert_eq!((panic, ended.into_inner()), (format!("task {who}"), 2));
        }
        assert_eq!(times_done(two, 2, 100), vec![1; 100]);
    }

    #[test]
    fn a_wake_up_meant_for_the_caller_stays() {
        let one = helpers(1);
        let meeting = Barrier::new(2);
        thread::current().unpark();
        // The caller waits for its helper.
        let here = thread::current().id();
        one.for_each(1, 2, |_| {
            meeting.wait();
            if thread::current().id() != here {
                thread::sleep(Duration::from_millis(20));
            }
        });
        let start = Instant::now();
        thread::park_timeout(Duration::from_secs(10));
        assert!(start.elapsed() < Duration::from_secs(5));
    }
}
