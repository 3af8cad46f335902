//! A capture as batches of times and keys, in time order.

use crate::capture::{Capture, CaptureError};
use crate::key::{Extract, NoKey};

/// Packets in a batch: few enough to stay in the processor's cache.
const BATCH: usize = 256;

/// Times, keys and what is shown of them, packet by packet.
struct Batch<X: Extract> {
    times: Vec<u64>,
    keys: Vec<X::Key>,
    shown: Vec<X::Shown>,
}

impl<X: Extract> Default for Batch<X> {
    fn default() -> Self {
        Self { times: Vec::new(), keys: Vec::new(), shown: Vec::new() }
    }
}

impl<X: Extract> Batch<X> {
    fn clear(&mut self) {
        self.times.clear();
        self.keys.clear();
        self.shown.clear();
    }
}

/// What the keys of a capture were like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Intake {
    /// Packets with a key.
    pub keyed: u64,
    /// Packets of another kind.
    pub foreign: u64,
    /// Packets whose key the snap length cut off.
    pub short: u64,
    /// Records without a frame where the key needs one.
    pub frameless: u64,
    /// How often a stamp was earlier than the one before it.
    pub backwards: u64,
    /// The largest such step in nanoseconds.
    pub largest_step_ns: u64,
    /// Time of the first packet with a key.
    pub first_ns: u64,
    /// Time of the last packet with a key.
    pub last_ns: u64,
}

impl Intake {
    /// Packets without a usable key.
    pub fn unkeyed(&self) -> u64 {
        self.foreign + self.short + self.frameless
    }
}

/// How the packets of a capture are read.
#[derive(Clone, Copy, Debug)]
pub struct Reading<X> {
    /// Takes the key from a packet.
    pub extract: X,
    /// Added to every time.
    pub shift_ns: u64,
    /// Whether what people are shown of keys is kept; it takes time.
    pub keep_shown: bool,
}

/// Walks through the packets of a capture that have a key.
pub struct Cursor<X: Extract> {
    capture: Capture,
    reading: Reading<X>,
    intake: Intake,
    batch: Batch<X>,
    at: usize,
    ended: bool,
}

/// Why the walk cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The capture cannot be read.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// The stamps are not in order: the capture has to be sorted first.
    #[error("the stamps are not in time order")]
    Unsorted,
}

impl<X: Extract> Cursor<X> {
    fn new(capture: Capture, reading: Reading<X>) -> Self {
        let (intake, batch) = (Intake::default(), Batch::default());
        Self { capture, reading, intake, batch, at: 0, ended: false }
    }

    /// Walks a capture that should be in time order; [`StreamError::Unsorted`] if it is not.
    pub fn stream(capture: Capture, reading: Reading<X>) -> Result<Self, StreamError> {
        let mut cursor = Self::new(capture, reading);
        cursor.refill()?;
        Ok(cursor)
    }

    /// Reads the whole capture into memory and walks it in time order; packets with equal times
    /// keep the order of the file.
    pub fn sorted(capture: Capture, reading: Reading<X>) -> Result<Self, CaptureError> {
        let mut cursor = Self::new(capture, reading);
        while cursor.append()? {}
        cursor.ended = true;
        let batch = std::mem::take(&mut cursor.batch);
        let mut order: Vec<usize> = (0..batch.times.len()).collect();
        order.sort_by_key(|&i| batch.times[i]);
        cursor.batch.times = order.iter().map(|&i| batch.times[i]).collect();
        cursor.batch.keys = order.iter().map(|&i| batch.keys[i]).collect();
        if reading.keep_shown {
            cursor.batch.shown = order.iter().map(|&i| batch.shown[i]).collect();
        }
        cursor.intake.first_ns = cursor.batch.times.first().copied().unwrap_or(0);
        cursor.intake.last_ns = cursor.batch.times.last().copied().unwrap_or(0);
        Ok(cursor)
    }

    /// The capture behind the cursor.
    pub fn capture(&self) -> &Capture {
        &self.capture
    }

    /// What was read so far.
    pub fn intake(&self) -> &Intake {
        &self.intake
    }

    /// The next packet's time and key, without taking it.
    #[inline]
    pub fn peek(&self) -> Option<(u64, X::Key)> {
        Some((*self.batch.times.get(self.at)?, self.batch.keys[self.at]))
    }

    /// What is shown of the key of the packet that [`Self::peek`] shows, if it was to be kept.
    #[inline]
    pub fn shown(&self) -> Option<X::Shown> {
        self.batch.shown.get(self.at).copied()
    }

    /// At the first packet of a batch, the keys of the batch: a time for what is done by the
    /// batch.
    #[inline]
    pub fn starting_batch(&self) -> Option<&[X::Key]> {
        self.at
            .is_multiple_of(BATCH)
            .then(|| &self.batch.keys[self.at..self.batch.keys.len().min(self.at + BATCH)])
    }

    /// Takes the packet that [`Self::peek`] shows.
    #[inline]
    pub fn advance(&mut self) -> Result<(), StreamError> {
        self.at += 1;
        if self.at >= self.batch.times.len() && !self.ended { self.refill() } else { Ok(()) }
    }

    fn refill(&mut self) -> Result<(), StreamError> {
        self.batch.clear();
        self.at = 0;
        while self.batch.times.is_empty() && !self.ended {
            self.ended = !self.append()?;
        }
        if self.intake.backwards > 0 { Err(StreamError::Unsorted) } else { Ok(()) }
    }

    /// Appends up to `BATCH` packets of the file to the batch; `false` at the end of the file.
    fn append(&mut self) -> Result<bool, CaptureError> {
        let Self { capture, reading, intake, batch, .. } = self;
        capture.read(BATCH, |packet| match reading.extract.extract(packet.content) {
            Ok((key, shown)) => {
                let time = packet.time_ns.saturating_add(reading.shift_ns);
                if intake.keyed == 0 {
                    intake.first_ns = time;
                } else if time < intake.last_ns {
                    intake.backwards += 1;
                    let step = intake.last_ns - time;
                    intake.largest_step_ns = intake.largest_step_ns.max(step);
                }
                intake.keyed += 1;
                intake.last_ns = time;
                batch.times.push(time);
                batch.keys.push(key);
                if reading.keep_shown {
                    batch.shown.push(shown);
                }
            }
            Err(NoKey::Foreign) => intake.foreign += 1,
            Err(NoKey::Short) => intake.short += 1,
            Err(NoKey::NoFrame) => intake.frameless += 1,
        })
    }
}
