//! CLOCK_MONOTONIC, the clock of the eBPF taps (`bpf_ktime_get_ns`), in nanoseconds.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};

/// Sleeping ends this long before the time that is waited for; the rest is spun, because a sleeper
/// wakes up to some tens of microseconds late.
pub const SPIN_NS: u64 = 100_000;

/// The time now.
#[inline]
pub fn now_ns() -> u64 {
    read(ClockId::Monotonic)
}

/// What CLOCK_REALTIME is ahead of CLOCK_MONOTONIC, exactly. Both run at the same pace, so that this
/// stays until somebody sets the clock.
pub fn realtime_ahead_ns() -> u64 {
    loop {
        // The coarse clocks stand still between two ticks, and both are the time of the last one.
        let before = read(ClockId::MonotonicCoarse);
        let real = read(ClockId::RealtimeCoarse);
        if read(ClockId::MonotonicCoarse) == before {
            return real.wrapping_sub(before);
        }
    }
}

#[inline]
fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A clock to send packets by.
pub trait Clock {
    /// The time now, in nanoseconds.
    fn now(&self) -> u64;

    /// Waits until `due` and returns the time then. `false` in `go_on` ends the wait early.
    fn wait_until(&self, due: u64, go_on: impl Fn() -> bool) -> u64;
}

/// CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug)]
pub struct Monotonic;

impl Clock for Monotonic {
    #[inline]
    fn now(&self) -> u64 {
        now_ns()
    }

    #[inline]
    fn wait_until(&self, due: u64, go_on: impl Fn() -> bool) -> u64 {
        wait_until(due, go_on)
    }
}

/// A clock that stands still until somebody waits or [advances](Self::advance) it, so that every
/// time in a test is known. Copies of it are the same clock.
#[derive(Clone, Debug, Default)]
pub struct Simulated(Rc<Cell<u64>>);

impl Simulated {
    /// Lets time pass.
    pub fn advance(&self, ns: u64) {
        self.0.set(self.0.get() + ns);
    }
}

impl Clock for Simulated {
    fn now(&self) -> u64 {
        self.0.get()
    }

    fn wait_until(&self, due: u64, go_on: impl Fn() -> bool) -> u64 {
        if go_on() {
            self.0.set(self.0.get().max(due));
        }
        self.0.get()
    }
}

/// Waits until `due` and returns the time then: sleeps while it is far away, spins at the end.
/// `false` in `go_on` ends the wait early.
pub fn wait_until(due: u64, go_on: impl Fn() -> bool) -> u64 {
    loop {
        let now = now_ns();
        if now >= due || !go_on() {
            return now;
        }
        if due - now > 2 * SPIN_NS {
            // Short enough that a stop is noticed soon.
            sleep_until((due - SPIN_NS).min(now + 50_000_000));
        } else {
            std::hint::spin_loop();
        }
    }
}

/// Something that is due again and again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    period: Option<u64>,
    due: u64,
}

impl Deadline {
    /// Due a period from `now` on; never without a period.
    pub(crate) fn new(period: Option<u64>, now: u64) -> Self {
        Self { period, due: period.map_or(u64::MAX, |period| now.saturating_add(period)) }
    }

    /// When it is due.
    pub(crate) fn due(&self) -> u64 {
        self.due
    }

    /// Whether it is due; then it is due again a period from now.
    pub(crate) fn is_due(&mut self) -> bool {
        self.is_due_at(now_ns())
    }

    /// The same at another time.
    pub(crate) fn is_due_at(&mut self, now: u64) -> bool {
        let due = now >= self.due;
        if due {
            *self = Self::new(self.period, now);
        }
        due
    }
}

/// Is told when somebody sets CLOCK_REALTIME.
#[derive(Debug)]
pub(crate) struct ClockSet(OwnedFd);

impl ClockSet {
    /// Begins to watch.
    pub(crate) fn watch() -> io::Result<Self> {
        // A timer that never expires, and is cancelled when the clock is set: timerfd_create(2).
        let never = Timespec { tv_sec: 8_000_000_000, tv_nsec: 0 };
        let time = Itimerspec { it_interval: Timespec::default(), it_value: never };
        let timer = timerfd_create(
            TimerfdClockId::Realtime,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )?;
        let flags = TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET;
        timerfd_settime(&timer, flags, &time)?;
        Ok(Self(timer))
    }

    /// Readable when the clock was set.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Hears it, so that it is silent until the clock is set again.
    pub(crate) fn hear(&self) {
        // That the timer was cancelled is an error, and says it all.
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}

/// Sleeps until about `due`, or until a signal.
fn sleep_until(due: u64) {
    let time =
        Timespec { tv_sec: (due / 1_000_000_000) as i64, tv_nsec: (due % 1_000_000_000) as i64 };
    let _ = clock_nanosleep_absolute(ClockId::Monotonic, &time);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_ends_at_or_after_the_time() {
        for distance in [0, 20_000, 1_000_000] {
            let due = now_ns() + distance;
            let woke = wait_until(due, || true);
            assert!(woke >= due && woke <= now_ns());
        }
    }

    #[test]
    fn the_clocks_are_apart_by_what_is_said() {
        let ahead = realtime_ahead_ns();
        for _ in 0..100 {
            let (before, real, after) = (now_ns(), read(ClockId::Realtime), now_ns());
            assert!(before + ahead <= real && real <= after + ahead);
        }
    }

    #[test]
    fn waiting_ends_early_when_told() {
        let asked = Cell::new(0);
        let due = now_ns() + 3_600_000_000_000;
        let woke = wait_until(due, || {
            asked.set(asked.get() + 1);
            asked.get() < 3
        });
        assert!(woke < due);
        assert_eq!(asked.get(), 3);
    }
}
