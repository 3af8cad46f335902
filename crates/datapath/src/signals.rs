//! Stopping cleanly on SIGINT and SIGTERM, also when called from Python's main thread.
//!
//! A handler sets a flag, for loops that spin, and writes to an eventfd, for those that wait.
//! Python's own handlers are put back afterwards.

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::cpu::check;

static REQUESTED: AtomicBool = AtomicBool::new(false);
static EVENT: AtomicI32 = AtomicI32::new(-1);
/// How many [`StopSignals`] live; the first installs, the last restores.
static LIVE: Mutex<Option<Installed>> = Mutex::new(None);

struct Installed {
    count: usize,
    event: OwnedFd,
    previous: [(libc::c_int, libc::sigaction); 2],
}

/// While this lives, SIGINT and SIGTERM ask for a stop instead of ending the process.
#[derive(Debug)]
pub struct StopSignals(());

extern "C" fn on_signal(_: libc::c_int) {
    REQUESTED.store(true, Ordering::Relaxed);
    let one = 1u64;
    // SAFETY: write(2) may be called in a handler; the descriptor is open while the handler is
    // installed. errno is put back for the code that was interrupted.
    unsafe {
        let errno = *libc::__errno_location();
        libc::write(EVENT.load(Ordering::Relaxed), (&raw const one).cast(), 8);
        *libc::__errno_location() = errno;
    }
}

impl StopSignals {
    /// Installs the handlers.
    pub fn install() -> io::Result<Self> {
        let mut live = LIVE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(installed) = live.as_mut() {
            installed.count += 1;
            return Ok(Self(()));
        }
        // SAFETY: takes no pointers; the descriptor is ours.
        let event = unsafe {
            OwnedFd::from_raw_fd(check(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK))?)
        };
        REQUESTED.store(false, Ordering::Relaxed);
        EVENT.store(event.as_raw_fd(), Ordering::Relaxed);
        *live = Some(Installed {
            count: 1,
            event,
            previous: [libc::SIGINT, libc::SIGTERM].map(|signal| (signal, replace(signal))),
        });
        Ok(Self(()))
    }

    /// Whether a stop was asked for.
    #[inline]
    pub fn requested(&self) -> bool {
        REQUESTED.load(Ordering::Relaxed)
    }

    /// Waits until a stop is asked for, `readable` has something to read, or the time is over.
    pub fn wait(&self, readable: Option<BorrowedFd<'_>>, timeout: Duration) {
        let watch = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // A negative descriptor is ignored.
        let mut watched =
            [watch(EVENT.load(Ordering::Relaxed)), watch(readable.map_or(-1, |fd| fd.as_raw_fd()))];
        let timeout = libc::timespec {
            tv_sec: timeout.as_secs() as libc::time_t,
            tv_nsec: libc::c_long::from(timeout.subsec_nanos()),
        };
        // SAFETY: the array has as many entries as said; the signal mask is left alone.
        unsafe {
            libc::ppoll(
                watched.as_mut_ptr(),
                watched.len() as libc::nfds_t,
                &raw const timeout,
                std::ptr::null(),
            )
        };
    }
}

impl Drop for StopSignals {
    fn drop(&mut self) {
        let mut live = LIVE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(installed) = live.as_mut() {
            installed.count -= 1;
            if installed.count == 0 {
                for (signal, previous) in &installed.previous {
                    // SAFETY: `previous` came from the kernel.
                    unsafe { libc::sigaction(*signal, previous, std::ptr::null_mut()) };
                }
                EVENT.store(-1, Ordering::Relaxed);
                *live = None;
            }
        }
    }
}

impl std::fmt::Debug for Installed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Installed")
            .field("count", &self.count)
            .field("event", &self.event)
            .finish_non_exhaustive()
    }
}

/// Installs the handler for `signal` and returns the one before.
fn replace(signal: libc::c_int) -> libc::sigaction {
    // SAFETY: a zeroed sigaction has an empty mask and no flags; the handler is async-signal-safe.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        let mut previous: libc::sigaction = zeroed();
        libc::sigaction(signal, &raw const action, &raw mut previous);
        previous
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_signal_stops_wakes_and_is_forgotten_afterwards() {
        let outer = StopSignals::install().expect("eventfd");
        assert!(!outer.requested());
        let inner = StopSignals::install().expect("second one");
        drop(inner); // must not take the handler away
        // SAFETY: the handler is installed.
        unsafe { libc::raise(libc::SIGTERM) };
        assert!(outer.requested());
        let start = Instant::now();
        outer.wait(None, Duration::from_secs(60));
        assert!(start.elapsed() < Duration::from_secs(30));
        drop(outer);
        assert!(!StopSignals::install().expect("again").requested());
    }
}
