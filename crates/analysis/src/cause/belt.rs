//! Buffers that go from one thread to another and come back empty. Memory that was touched once is
//! used again, which is much of what handing over costs otherwise.

use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

/// Buffers that may wait to be taken.
const WAITING: usize = 4;

/// The end that fills buffers.
pub(super) struct Feed<T, A> {
    full: SyncSender<(Vec<T>, A)>,
    empty: Receiver<Vec<T>>,
}

/// The end that empties them.
pub(super) struct Belt<T, A> {
    full: Receiver<(Vec<T>, A)>,
    empty: Sender<Vec<T>>,
}

/// A belt of buffers, each with something said of it.
pub(super) fn belt<T, A>() -> (Feed<T, A>, Belt<T, A>) {
    let (feed, full) = sync_channel(WAITING);
    let (back, empty) = channel();
    (Feed { full: feed, empty }, Belt { full, empty: back })
}

impl<T, A> Feed<T, A> {
    /// An empty buffer.
    pub(super) fn empty(&self) -> Vec<T> {
        self.empty.try_recv().unwrap_or_default()
    }

    /// Hands a buffer over; `false` when nobody takes more.
    pub(super) fn send(&self, buffer: Vec<T>, about: A) -> bool {
        self.full.send((buffer, about)).is_ok()
    }
}

impl<T, A> Belt<T, A> {
    /// Works on each buffer, until the other end is gone or there is an error.
    pub(super) fn each<E>(self, mut work: impl FnMut(&[T], A) -> Result<(), E>) -> Result<(), E> {
        for (mut buffer, about) in self.full {
            work(&buffer, about)?;
            buffer.clear();
            // The other end may be gone, and needs no more of them.
            let _ = self.empty.send(buffer);
        }
        Ok(())
    }
}
