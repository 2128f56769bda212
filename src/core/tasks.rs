//! The tasks of a core: hyper and the handlers of its requests. The loop runs them between its turns, for a bounded
//! time.
//!
//! A turn of the loop answers redirects; tasks do everything else. Woken tasks wait in one queue. [`Tasks::run`] polls
//! them in the order in which they were woken until [`TASK_TIME_PER_TURN`] is over, and continues after the next
//! turn. A redirect therefore waits for at most one such period, plus the task that was polled last. A task with much
//! to parse yields by itself once [`TASK_SLICE`] is over (see [`Tasks::must_yield`]).

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use carom_limits::{TASK_SLICE, TASK_TIME_PER_TURN};

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// The tasks of one core. Clones are handles to the same tasks, which stay on the thread of the core.
#[derive(Clone, Default)]
pub(super) struct Tasks(Rc<Inner>);

#[derive(Default)]
struct Inner {
    slots: RefCell<Vec<Option<TaskSlot>>>,
    free: RefCell<Vec<usize>>,
    /// Number of tasks that have not ended.
    live: Cell<usize>,
    woken: Arc<Woken>,
    /// The time at which the current poll began; `None` between polls.
    polled_at: Cell<Option<Instant>>,
}

/// A slot for a task. The task is taken out while it is polled.
struct TaskSlot {
    task: Option<Task>,
    wakeup: Arc<Wakeup>,
}

/// Tasks that were woken and not polled since. The lock satisfies the contract of [`Waker`]. In practice only the
/// core's own thread wakes its tasks, so the lock is never contended.
#[derive(Default)]
struct Woken {
    queue: Mutex<VecDeque<Arc<Wakeup>>>,
    len: AtomicUsize,
}

/// The waker of one task.
struct Wakeup {
    slot: usize,
    /// True if it is already in the queue.
    is_queued: AtomicBool,
    woken: Arc<Woken>,
}

impl Wake for Wakeup {
    fn wake(self: Arc<Wakeup>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Wakeup>) {
        if !self.is_queued.swap(true, Ordering::AcqRel) {
            self.woken.push(Arc::clone(self));
        }
    }
}

impl Woken {
    fn push(&self, wakeup: Arc<Wakeup>) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.push_back(wakeup);
        self.len.store(queue.len(), Ordering::Release);
    }

    fn pop(&self) -> Option<Arc<Wakeup>> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let wakeup = queue.pop_front();
        self.len.store(queue.len(), Ordering::Release);
        wakeup
    }
}

impl Tasks {
    /// Starts a task. Its first poll comes with the next [`Tasks::run`].
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        let mut slots = self.0.slots.borrow_mut();
        let slot = self.0.free.borrow_mut().pop().unwrap_or_else(|| {
            slots.push(None);
            slots.len() - 1
        });
        let wakeup = Arc::new(Wakeup { slot, is_queued: AtomicBool::new(true), woken: Arc::clone(&self.0.woken) });
        slots[slot] = Some(TaskSlot { task: Some(Box::pin(task)), wakeup: Arc::clone(&wakeup) });
        self.0.live.set(self.0.live.get() + 1);
        self.0.woken.push(wakeup);
    }

    /// True if a task waits to be polled. Then the loop must not sleep.
    #[inline]
    pub(super) fn has_woken(&self) -> bool {
        // A plain load: most turns wake no task.
        self.0.woken.len.load(Ordering::Relaxed) > 0
    }

    /// True if some tasks have not ended.
    pub(super) fn has_tasks(&self) -> bool {
        self.0.live.get() > 0
    }

    /// Polls woken tasks, each at most once, until none is left or [`TASK_TIME_PER_TURN`] is over. Returns the duration
    /// of the longest poll.
    pub(super) fn run(&self) -> Duration {
        let begin = Instant::now();
        let (mut before, mut longest) = (begin, Duration::ZERO);
        // Tasks that are woken meanwhile wait for the loop's next turn, which may have something for them.
        for _ in 0..self.0.woken.len.load(Ordering::Relaxed) {
            let Some(wakeup) = self.0.woken.pop() else { break };
            self.0.polled_at.set(Some(before));
            self.poll(&wakeup);
            let now = Instant::now();
            longest = longest.max(now - before);
            before = now;
            if now - begin >= TASK_TIME_PER_TURN {
                break;
            }
        }
        self.0.polled_at.set(None);
        longest
    }

    /// True if the task that is being polled has used up its time. It should wake itself and return `Pending`.
    pub(super) fn must_yield(&self) -> bool {
        self.0.polled_at.get().is_some_and(|begin| begin.elapsed() >= TASK_SLICE)
    }

    /// Drops all tasks and everything that they hold, including references to each other.
    pub(super) fn clear(&self) {
        loop {
            // Dropping a task may start another one.
            let slots = std::mem::take(&mut *self.0.slots.borrow_mut());
            self.0.free.borrow_mut().clear();
            self.0.live.set(0);
            if slots.is_empty() {
                break;
            }
        }
        while self.0.woken.pop().is_some() {}
    }

    fn poll(&self, wakeup: &Arc<Wakeup>) {
        let slot = wakeup.slot;
        // The slot may be empty by now, or belong to another task.
        let task = match self.0.slots.borrow_mut().get_mut(slot) {
            Some(Some(found)) if Arc::ptr_eq(&found.wakeup, wakeup) => found.task.take(),
            _ => None,
        };
        let Some(mut task) = task else { return };
        // From here on a wake-up counts again, including one by the task itself.
        wakeup.is_queued.store(false, Ordering::Release);
        let is_ready = task.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::clone(wakeup)))).is_ready();
        let mut slots = self.0.slots.borrow_mut();
        let Some(place) = slots.get_mut(slot) else { return };
        if is_ready {
            *place = None;
            self.0.free.borrow_mut().push(slot);
            debug_assert!(self.0.live.get() > 0, "a task that ends was counted");
            self.0.live.set(self.0.live.get() - 1);
            // Values that the task drops may start or wake others.
            drop(slots);
            drop(task);
        } else if let Some(place) = place {
            place.task = Some(task);
        }
    }
}

impl std::fmt::Debug for Tasks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tasks({} live)", self.0.live.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, poll_fn};
    use std::task::Poll;

    /// Returns a task that takes `time` for each of `times` polls, and counts them.
    fn busy(time: Duration, times: usize, polls: &Rc<Cell<usize>>) -> impl Future<Output = ()> + 'static {
        let (polls, mut left) = (Rc::clone(polls), times);
        poll_fn(move |context| {
            let begin = Instant::now();
            while begin.elapsed() < time {}
            polls.set(polls.get() + 1);
            left -= 1;
            context.waker().wake_by_ref();
            if left == 0 { Poll::Ready(()) } else { Poll::Pending }
        })
    }

    #[test]
    fn tasks_run_no_longer_than_their_share_of_a_turn() {
        let (tasks, polls) = (Tasks::default(), Rc::new(Cell::new(0)));
        let time = TASK_TIME_PER_TURN / 4;
        for _ in 0..100 {
            tasks.spawn(busy(time, 1, &polls));
        }
        let longest = tasks.run();
        assert!((1..=4).contains(&polls.get()), "{}", polls.get());
        assert!(longest >= time);
        assert!(tasks.has_woken());
        while tasks.has_woken() {
            tasks.run();
        }
        assert!(polls.get() == 100);
        assert!(!tasks.has_tasks());
    }

    #[test]
    fn a_task_that_wakes_itself_waits_for_the_next_turn() {
        let (tasks, polls) = (Tasks::default(), Rc::new(Cell::new(0)));
        tasks.spawn(busy(Duration::ZERO, 3, &polls));
        for turn in 1..=3 {
            tasks.run();
            assert_eq!(polls.get(), turn);
        }
        tasks.run();
        assert!(polls.get() == 3);
        assert!(!tasks.has_tasks());
        assert!(!tasks.has_woken());
    }

    #[test]
    fn a_task_is_told_when_its_time_is_over() {
        let tasks = Tasks::default();
        let (handle, seen) = (tasks.clone(), Rc::new(Cell::new((true, false))));
        let told = Rc::clone(&seen);
        tasks.spawn(async move {
            let at_first = handle.must_yield();
            let begin = Instant::now();
            while begin.elapsed() < 2 * TASK_SLICE {}
            told.set((at_first, handle.must_yield()));
        });
        // Other programs may have interrupted the first poll, but it has begun.
        tasks.run();
        assert!(seen.get().1);
        assert!(!tasks.must_yield());
    }

    #[test]
    fn a_slot_is_used_again_and_a_late_wake_up_reaches_nobody_else() {
        let (tasks, polls) = (Tasks::default(), Rc::new(Cell::new(0)));
        let kept: Rc<RefCell<Option<Waker>>> = Rc::default();
        let keep = Rc::clone(&kept);
        tasks.spawn(poll_fn(move |context| {
            *keep.borrow_mut() = Some(context.waker().clone());
            Poll::Ready(())
        }));
        tasks.run();
        tasks.spawn(busy(Duration::ZERO, 2, &polls));
        tasks.run();
        assert_eq!((polls.get(), tasks.0.slots.borrow().len()), (1, 1));
        kept.take().unwrap().wake();
        tasks.run();
        tasks.run();
        assert!(polls.get() == 2);
        assert!(!tasks.has_tasks());
    }

    #[test]
    fn tasks_that_hold_each_other_are_dropped() {
        let tasks = Tasks::default();
        let held = Rc::new(());
        for _ in 0..3 {
            let (handle, held) = (tasks.clone(), Rc::clone(&held));
            tasks.spawn(async move {
                pending::<()>().await;
                drop((handle, held));
            });
        }
        tasks.run();
        assert!(tasks.has_tasks());
        tasks.clear();
        assert!(Rc::strong_count(&held) == 1);
        assert!(!tasks.has_tasks());
        assert!(!tasks.has_woken());
    }
}
