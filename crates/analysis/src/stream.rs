//! A capture as batches of times and keys, in time order.
//!
//! A thread of its own reads each capture and takes the keys from the packets, so that finding out
//! which packet is which goes on meanwhile.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::Scope;

use crate::capture::{Capture, CaptureError, Format, Notes};
use crate::key::{Extract, NoKey};
use crate::series::Series;

/// Packets that are handed over at once: many, as handing over takes time, but so few that they
/// stay in the processor's cache.
const BATCH: usize = 4096;
/// Batches that may wait to be taken.
const WAITING: usize = 4;
/// Packets that are prepared together for being looked up.
const BLOCK: usize = 256;

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
    /// Packets within this time of the first one are left out of the series.
    pub trim_ns: u64,
    /// Whether what people are shown of keys is kept; it takes time.
    pub keep_shown: bool,
}

/// Reads a capture, batch by batch.
struct Reader<X: Extract> {
    capture: Capture,
    reading: Reading<X>,
    intake: Intake,
    series: Series,
}

/// A batch on its way from the reader, with what was found out up to its end.
struct Parcel<X: Extract> {
    batch: Batch<X>,
    intake: Intake,
    notes: Notes,
    /// Whether there may be more to read.
    more: Result<bool, CaptureError>,
    /// The series of the whole capture, with the last parcel.
    series: Option<Series>,
}

impl<X: Extract> Reader<X> {
    fn new(capture: Capture, reading: Reading<X>) -> Self {
        Self { capture, reading, intake: Intake::default(), series: Series::default() }
    }

    /// Appends up to `BATCH` packets of the file to the batch; `false` at the end of the file.
    fn append(&mut self, batch: &mut Batch<X>) -> Result<bool, CaptureError> {
        let Self { capture, reading, intake, series } = self;
        capture.read(BATCH, |packet| match reading.extract.extract(packet.content) {
            Ok((key, shown)) => {
                let time = packet.time_ns.saturating_add(reading.shift_ns);
                if intake.keyed == 0 {
                    intake.first_ns = time;
                }
                if time < intake.last_ns {
                    intake.backwards += 1;
                    let step = intake.last_ns - time;
                    intake.largest_step_ns = intake.largest_step_ns.max(step);
                } else if intake.backwards == 0 && time - intake.first_ns >= reading.trim_ns {
                    // Stamps that are not in order are sorted, and make the series then.
                    series.record(time);
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

    /// Sends the whole capture, until it ends or nobody takes it any more. Used batches come back
    /// through `spare`.
    fn send_all(mut self, parcels: &SyncSender<Parcel<X>>, spare: &Receiver<Batch<X>>) {
        loop {
            let mut batch = spare.try_recv().unwrap_or_default();
            batch.clear();
            let more = self.append(&mut batch);
            let last = !matches!(more, Ok(true));
            let notes = self.capture.notes().clone();
            let series = last.then(|| std::mem::take(&mut self.series));
            let parcel = Parcel { batch, intake: self.intake, notes, more, series };
            if parcels.send(parcel).is_err() || last {
                return;
            }
        }
    }
}

/// Walks through the packets of a capture that have a key.
pub struct Cursor<X: Extract> {
    path: PathBuf,
    format: Format,
    notes: Notes,
    intake: Intake,
    series: Series,
    batch: Batch<X>,
    at: usize,
    supply: Option<Supply<X>>,
}

/// Where a cursor's further batches come from, and used ones go.
struct Supply<X: Extract> {
    arriving: Receiver<Parcel<X>>,
    used: Sender<Batch<X>>,
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
    /// Walks a capture that should be in time order; [`StreamError::Unsorted`] if it is not. It
    /// is read by a thread of `scope`, which ends with the cursor.
    pub fn stream<'scope>(
        scope: &'scope Scope<'scope, '_>,
        capture: Capture,
        reading: Reading<X>,
    ) -> Result<Self, StreamError>
    where
        X: 'scope,
    {
        let (parcels, arriving) = sync_channel(WAITING);
        let (used, spare) = channel();
        let mut cursor = Self {
            path: capture.path().to_owned(),
            format: capture.format(),
            notes: Notes::default(),
            intake: Intake::default(),
            series: Series::default(),
            batch: Batch::default(),
            at: 0,
            supply: Some(Supply { arriving, used }),
        };
        scope.spawn(move || Reader::new(capture, reading).send_all(&parcels, &spare));
        cursor.refill()?;
        Ok(cursor)
    }

    /// Reads the whole capture into memory and walks it in time order; packets with equal times
    /// keep the order of the file.
    pub fn sorted(capture: Capture, reading: Reading<X>) -> Result<Self, CaptureError> {
        let mut reader = Reader::new(capture, reading);
        let mut read = Batch::<X>::default();
        while reader.append(&mut read)? {}
        let mut order: Vec<usize> = (0..read.times.len()).collect();
        order.sort_by_key(|&i| read.times[i]);
        let mut batch = Batch::<X>::default();
        batch.times.extend(order.iter().map(|&i| read.times[i]));
        batch.keys.extend(order.iter().map(|&i| read.keys[i]));
        if reading.keep_shown {
            batch.shown.extend(order.iter().map(|&i| read.shown[i]));
        }
        let Reader { capture, mut intake, .. } = reader;
        intake.first_ns = batch.times.first().copied().unwrap_or(0);
        intake.last_ns = batch.times.last().copied().unwrap_or(0);
        let mut series = Series::default();
        let counted = |time: &&u64| **time - intake.first_ns >= reading.trim_ns;
        batch.times.iter().filter(counted).for_each(|&time| series.record(time));
        Ok(Self {
            path: capture.path().to_owned(),
            format: capture.format(),
            notes: capture.notes().clone(),
            intake,
            series,
            batch,
            at: 0,
            supply: None,
        })
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file's format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// What the reader found out so far.
    pub fn notes(&self) -> &Notes {
        &self.notes
    }

    /// Gaps and rates of the packets with a key; complete when the walk is.
    pub fn take_series(&mut self) -> Series {
        std::mem::take(&mut self.series)
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

    /// At the first packet of a block, the keys of the block: a time for what is done by the
    /// block.
    #[inline]
    pub fn starting_block(&self) -> Option<&[X::Key]> {
        let keys = &self.batch.keys;
        let end = keys.len().min(self.at + BLOCK);
        self.at.is_multiple_of(BLOCK).then(|| &keys[self.at..end])
    }

    /// Takes the packet that [`Self::peek`] shows.
    #[inline]
    pub fn advance(&mut self) -> Result<(), StreamError> {
        self.at += 1;
        if self.at >= self.batch.times.len() { self.refill() } else { Ok(()) }
    }

    /// Takes the next batch that is not empty, if there is one.
    fn refill(&mut self) -> Result<(), StreamError> {
        while self.at >= self.batch.times.len()
            && let Some(Supply { arriving, used }) = &self.supply
        {
            let Ok(parcel) = arriving.recv() else { break };
            let before = std::mem::replace(&mut self.batch, parcel.batch);
            // Nobody takes it back when the reader has come to its end.
            let _ = used.send(before);
            self.at = 0;
            self.intake = parcel.intake;
            self.notes = parcel.notes;
            self.series = parcel.series.unwrap_or_default();
            if !parcel.more? {
                self.supply = None;
            }
            if self.intake.backwards > 0 {
                return Err(StreamError::Unsorted);
            }
        }
        Ok(())
    }
}
