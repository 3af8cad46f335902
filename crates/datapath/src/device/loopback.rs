//! A device without a network: what is sent is received in this process, or handed to a function.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use super::Device;

/// Hands each frame to a function when the queue is handed over.
#[derive(Debug)]
pub struct Loopback<F> {
    queue: Vec<Vec<u8>>,
    room: usize,
    sink: F,
}

impl<F: FnMut(&[u8])> Loopback<F> {
    /// A device with a queue of `room` frames, at least one.
    pub fn new(room: usize, sink: F) -> Self {
        Self { queue: Vec::with_capacity(room), room, sink }
    }
}

/// The frames that a loopback device has sent, in their order.
#[derive(Clone, Debug, Default)]
pub struct Received(Rc<RefCell<VecDeque<Vec<u8>>>>);

impl Received {
    /// Takes the next frame.
    pub fn take(&self) -> Option<Vec<u8>> {
        self.0.borrow_mut().pop_front()
    }
}

/// A device with a queue of `room` frames, at least one, and what it has sent.
pub fn pair(room: usize) -> (Loopback<impl FnMut(&[u8])>, Received) {
    let received = Received::default();
    let frames = received.clone();
    (Loopback::new(room, move |frame| frames.0.borrow_mut().push_back(frame.into())), received)
}

impl<F: FnMut(&[u8])> Device for Loopback<F> {
    fn room(&self) -> usize {
        self.room
    }

    fn push(&mut self, frame: &[u8]) {
        assert!(self.queue.len() < self.room, "the queue has room for {} frames", self.room);
        self.queue.push(frame.into());
    }

    fn flush(&mut self) -> usize {
        for frame in self.queue.drain(..) {
            (self.sink)(&frame);
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_received_in_order_once_they_are_handed_over() {
        let (mut device, received) = pair(2);
        device.push(&[1; 60]);
        device.push(&[2; 61]);
        assert_eq!(received.take(), None);
        assert_eq!(device.flush(), 0);
        device.push(&[3; 62]);
        assert_eq!(received.take(), Some(vec![1; 60]));
        assert_eq!(received.take(), Some(vec![2; 61]));
        assert_eq!(received.take(), None);
        device.flush();
        assert_eq!(received.take(), Some(vec![3; 62]));
    }
}
