//! A capture as batches of times and keys, in time order.
//!
//! A thread of its own reads each capture and takes the keys from the packets, so that finding out
//! which packet is which goes on meanwhile.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::Scope;

use serde::{Deserialize, Serialize};

use crate::capture::{CaptureError, Format, LATEST_NS, Mark, Notes, Packet, Sink};
use crate::clocks::Clocks;
use crate::edges::{Covered, Span};
use crate::key::{Extract, NoKey};
use crate::series::Series;
use crate::source::{Feed, SetAside};
use crate::tick::Tick;

/// Packets that are handed over at once: many, as handing over takes time, but so few that they
/// stay in the processor's cache.
const BATCH: usize = 8192;
/// Batches that may wait to be taken.
const WAITING: usize = 4;

/// Times, keys and what is shown of them, packet by packet.
struct Batch<X: Extract> {
    /// Times and keys of the packets, and room for more.
    times: Vec<u64>,
    keys: Vec<u64>,
    packets: usize,
    shown: Vec<X::Shown>,
}

impl<X: Extract> Default for Batch<X> {
    fn default() -> Self {
        Self { times: Vec::new(), keys: Vec::new(), packets: 0, shown: Vec::new() }
    }
}

impl<X: Extract> Batch<X> {
    fn times(&self) -> &[u64] {
        &self.times[..self.packets]
    }

    fn keys(&self) -> &[u64] {
        &self.keys[..self.packets]
    }

    /// Makes room for so many more packets.
    fn make_room(&mut self, packets: usize, shown: bool) {
        let room = self.packets + packets;
        if self.times.len() < room {
            self.times.resize(room, 0);
            self.keys.resize(room, 0);
        }
        self.shown.reserve(if shown { packets } else { 0 });
    }

    /// In time order; packets with equal times keep theirs.
    fn sorted(self) -> Self {
        if self.times().is_sorted() {
            return self;
        }
        let packets = self.packets;
        let mut order: Vec<usize> = (0..packets).collect();
        order.sort_by_key(|&place| self.times[place]);
        Self {
            times: order.iter().map(|&place| self.times[place]).collect(),
            keys: order.iter().map(|&place| self.keys[place]).collect(),
            packets,
            // Not all batches hold what is shown.
            shown: order.iter().filter_map(|&place| self.shown.get(place).copied()).collect(),
        }
    }

    fn clear(&mut self) {
        self.packets = 0;
        self.shown.clear();
    }
}

/// What the keys of a capture were like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intake {
    /// Packets with a key.
    pub keyed: u64,
    /// Packets of another kind.
    pub foreign: u64,
    /// Packets whose key the snap length cut off.
    pub short: u64,
    /// Records without a frame where the key needs one.
    pub frameless: u64,
    /// Packets without the Ethernet header that the key counts from.
    pub headless: u64,
    /// How often a stamp was earlier than the one before it.
    pub backwards: u64,
    /// The largest such step in nanoseconds.
    pub largest_step_ns: u64,
    /// Time of the first packet with a key.
    pub first_ns: u64,
    /// Time of the last packet with a key.
    pub last_ns: u64,
    /// The step in which the stamps come, by the clock of the capture.
    pub tick: Tick,
}

impl Intake {
    /// Packets without a usable key.
    pub fn unkeyed(&self) -> u64 {
        self.foreign + self.short + self.frameless + self.headless
    }

    /// Counts a packet without a usable key.
    #[cold]
    fn note_unkeyed(&mut self, why: NoKey) {
        match why {
            NoKey::Foreign => self.foreign += 1,
            NoKey::Short => self.short += 1,
            NoKey::NoFrame => self.frameless += 1,
            NoKey::NoEthernet => self.headless += 1,
        }
    }

    /// Adds what was read next of the same capture.
    pub fn merge(&mut self, next: &Self) {
        if self.keyed == 0 {
            self.first_ns = next.first_ns;
        }
        if next.keyed > 0 {
            self.last_ns = next.last_ns;
        }
        self.keyed += next.keyed;
        self.foreign += next.foreign;
        self.short += next.short;
        self.frameless += next.frameless;
        self.headless += next.headless;
        self.backwards += next.backwards;
        self.largest_step_ns = self.largest_step_ns.max(next.largest_step_ns);
        self.tick.merge(&next.tick);
    }
}

/// How the packets of a capture are read.
#[derive(Clone, Debug)]
pub struct Reading<X> {
    /// Takes the key from a packet.
    pub extract: X,
    /// Added to every time.
    pub shift_ns: u64,
    /// Brings every time to another clock.
    pub clocks: Option<Clocks>,
    /// Packets within this time of the first one are left out of the series.
    pub trim_ns: u64,
    /// Whether what people are shown of keys is kept; it takes time.
    pub keep_shown: bool,
    /// Where to begin and what to find on the way; the whole capture when there is none.
    pub stretch: Option<Stretch>,
    /// The time whose packets are counted; others are read but only handed on.
    pub span: Span,
}

/// A part of a capture in time order, and what is known of the whole.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stretch {
    /// Where reading begins.
    pub begin: Mark,
    /// Records that start at these places, if reading gets there, and with these times.
    pub marks: Vec<Mark>,
    /// Reading ends at a packet of this time.
    pub end_ns: u64,
    /// Time of the first packet with a key of the whole capture, if there is one.
    pub first_ns: Option<u64>,
    /// Time of the first packet of the whole capture that the series count, if there is one.
    pub origin_ns: Option<u64>,
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
    /// The capture is not what it was taken for when it was split up.
    #[error("the capture cannot be split up")]
    NotSplittable,
}

/// What was found out about a capture on the way.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// What the reader found out about the file.
    pub notes: Notes,
    /// What was found out about each file, where there are several.
    pub files: Vec<(PathBuf, Notes)>,
    /// Packets of the files that are not of the side.
    pub set_aside: SetAside,
    /// What the keys were like.
    pub intake: Intake,
    /// Gaps and rates of the packets with a key.
    pub series: Series,
}

impl Covered {
    /// The same by the clock of the walk.
    fn converted(self, clocks: Option<&Clocks>) -> Self {
        let mut ends = [self.from_ns, self.until_ns];
        if let (Some(clocks), true) = (clocks, self != Self::NONE) {
            clocks.convert(&mut ends);
        }
        Self { from_ns: ends[0], until_ns: ends[1] }
    }
}

/// Takes packets from a capture into a batch.
struct Take<'a, X: Extract> {
    reading: &'a Reading<X>,
    /// Room for the times and keys of as many packets as will be read.
    times: &'a mut [u64],
    keys: &'a mut [u64],
    shown: &'a mut Vec<X::Shown>,
    /// Packets with a key so far.
    taken: usize,
    intake: &'a mut Intake,
    /// Time of the last packet, and whether all were in order.
    latest_ns: u64,
    ascending: bool,
    covered: Covered,
}

impl<X: Extract> Sink for Take<'_, X> {
    #[inline(always)]
    fn take(&mut self, packet: Packet<'_>) {
        let Reading { extract, shift_ns, span, keep_shown, .. } = self.reading;
        let time = packet.time_ns.saturating_add(*shift_ns).min(LATEST_NS);
        self.ascending &= time >= self.latest_ns;
        self.latest_ns = time;
        self.covered.add(time);
        match extract.extract(packet.content) {
            Ok((key, shown)) => {
                self.times[self.taken] = time;
                self.keys[self.taken] = key;
                self.taken += 1;
                if *keep_shown {
                    self.shown.push(shown);
                }
            }
            Err(why) if span.contains(time) => self.intake.note_unkeyed(why),
            Err(_) => {}
        }
    }
}

/// Reads a capture, batch by batch.
struct Reader<X: Extract> {
    capture: Feed,
    reading: Reading<X>,
    /// The marks that are still ahead, the next one last.
    ahead: Vec<Mark>,
    /// Time of the first packet with a key of the whole capture.
    first_ns: Option<u64>,
    /// Time of the last packet with a key, counted or not.
    last_ns: u64,
    /// Time of the last record, and whether all were in order.
    latest_ns: u64,
    ascending: bool,
    /// From when to when there were records so far, by the clock of the capture.
    covered: Covered,
    intake: Intake,
    series: Series,
}

impl<X: Extract> Reader<X> {
    fn new(mut capture: Feed, reading: Reading<X>) -> Result<Self, CaptureError> {
        let mut ahead = Vec::new();
        let mut first_ns = None;
        let mut series = Series::default();
        if let Some(stretch) = &reading.stretch {
            ahead.extend(stretch.marks.iter().rev());
            first_ns = stretch.first_ns;
            series = Series::starting(stretch.origin_ns);
            capture.seek(stretch.begin.offset, ahead.last().map(|mark: &Mark| mark.offset))?;
        }
        let intake = Intake::default();
        let (last_ns, latest_ns, ascending) = (0, 0, true);
        Ok(Self {
            capture,
            reading,
            ahead,
            first_ns,
            last_ns,
            latest_ns,
            ascending,
            covered: Covered::NONE,
            intake,
            series,
        })
    }

    /// Appends up to `BATCH` packets to the batch; `false` at the end.
    fn append(&mut self, batch: &mut Batch<X>) -> Result<bool, StreamError> {
        let Self { capture, reading, intake, .. } = self;
        let start = batch.packets;
        batch.make_room(BATCH, reading.keep_shown);
        let mut take = Take {
            reading,
            times: &mut batch.times[start..],
            keys: &mut batch.keys[start..],
            shown: &mut batch.shown,
            taken: 0,
            intake,
            latest_ns: self.latest_ns,
            ascending: self.ascending,
            covered: self.covered,
        };
        let more = capture.read_into(BATCH, &mut take)?;
        let Take { taken, latest_ns, ascending, covered, .. } = take;
        (self.latest_ns, self.ascending, self.covered) = (latest_ns, ascending, covered);
        batch.packets += taken;
        self.intake.tick.record_all(&batch.times[start..batch.packets]);
        if let Some(clocks) = &reading.clocks {
            clocks.convert(&mut batch.times[start..batch.packets]);
        }
        self.survey(&batch.times()[start..]);
        self.go_on(more)
    }

    /// Takes note of the times of further packets with a key.
    fn survey(&mut self, times: &[u64]) {
        let (Some(&first), Some(&last)) = (times.first(), times.last()) else { return };
        let first_ns = *self.first_ns.get_or_insert(first);
        if first < self.last_ns || !times.is_sorted() {
            let mut before = self.last_ns;
            for &time in times {
                if time < before {
                    self.intake.backwards += 1;
                    self.intake.largest_step_ns = self.intake.largest_step_ns.max(before - time);
                }
                before = time;
            }
        }
        self.last_ns = last;
        if self.intake.backwards > 0 {
            // Stamps that are not in order are sorted, and counted then.
            return;
        }
        let times = self.reading.span.of(times);
        if let (Some(&first), Some(&last)) = (times.first(), times.last()) {
            if self.intake.keyed == 0 {
                self.intake.first_ns = first;
            }
            self.intake.last_ns = last;
            self.intake.keyed += times.len() as u64;
            let cut = first_ns.saturating_add(self.reading.trim_ns);
            self.series.record_all(&times[times.partition_point(|&time| time < cut)..]);
        }
    }

    fn covered(&self) -> Covered {
        self.covered.converted(self.reading.clocks.as_ref())
    }

    /// Whether to go on in a stretch. Where a record should begin, one must.
    fn go_on(&mut self, more: bool) -> Result<bool, StreamError> {
        let Some(stretch) = &self.reading.stretch else { return Ok(more) };
        let span = self.reading.span;
        let notes = self.capture.notes();
        let damaged = notes.damage.is_some();
        // What was not read has no time, and so belongs to no part.
        if !self.ascending || notes.skipped.places > 0 || notes.unread.total() > 0 {
            Err(StreamError::NotSplittable)
        } else if more || self.last_ns >= stretch.end_ns {
            Ok(more && self.last_ns < stretch.end_ns)
        } else if let Some(mark) = self.ahead.pop() {
            let there = self.capture.position() == mark.offset && self.latest_ns < mark.time_ns;
            if damaged || !there {
                return Err(StreamError::NotSplittable);
            }
            let end = self.ahead.last().map(|mark| mark.offset);
            self.capture.seek(mark.offset, end)?;
            Ok(true)
        } else if damaged && self.last_ns < span.until_ns && !span.is_open() {
            // The parts behind the damage must not be read.
            Err(StreamError::NotSplittable)
        } else {
            Ok(false)
        }
    }

    fn findings(&mut self) -> Findings {
        let (intake, series) = (self.intake, std::mem::take(&mut self.series));
        let mut notes = self.capture.notes();
        notes.packets = intake.keyed + intake.unkeyed();
        if !self.reading.span.is_open() {
            // It lies in the part behind this one, which tells of it.
            notes.damage = None;
        }
        let (files, set_aside) = (self.capture.files(), self.capture.set_aside());
        Findings { notes, files, set_aside, intake, series }
    }

    /// Sends the whole capture, until it ends or nobody takes it any more. Used batches come back
    /// through `spare`.
    fn send_all(mut self, parcels: &SyncSender<Parcel<X>>, spare: &Receiver<Batch<X>>) {
        loop {
            let mut batch = spare.try_recv().unwrap_or_default();
            batch.clear();
            let mut more = self.append(&mut batch);
            if self.intake.backwards > 0 {
                more = Err(StreamError::Unsorted);
            }
            let last = !matches!(more, Ok(true));
            let findings = last.then(|| self.findings());
            let covered = self.covered();
            let parcel = Parcel { batch, first_ns: self.first_ns, covered, more, findings };
            if parcels.send(parcel).is_err() || last {
                return;
            }
        }
    }
}

/// A batch on its way from the reader.
struct Parcel<X: Extract> {
    batch: Batch<X>,
    /// Time of the first packet with a key of the whole capture, once known.
    first_ns: Option<u64>,
    /// From when to when there were records so far.
    covered: Covered,
    /// Whether there may be more to read.
    more: Result<bool, StreamError>,
    /// With the last parcel.
    findings: Option<Findings>,
}

/// Walks through the packets of a capture that have a key.
pub struct Cursor<X: Extract> {
    path: PathBuf,
    file: PathBuf,
    format: Format,
    findings: Findings,
    first_ns: Option<u64>,
    covered: Covered,
    batch: Batch<X>,
    at: usize,
    supply: Option<Supply<X>>,
}

/// Where a cursor's further batches come from, and used ones go.
struct Supply<X: Extract> {
    arriving: Receiver<Parcel<X>>,
    used: Sender<Batch<X>>,
}

impl<X: Extract> Cursor<X> {
    /// Walks a capture that should be in time order; [`StreamError::Unsorted`] if it is not. It
    /// is read by a thread of `scope`, which ends with the cursor.
    pub fn stream<'scope>(
        scope: &'scope Scope<'scope, '_>,
        capture: Feed,
        reading: &Reading<X>,
    ) -> Result<Self, StreamError>
    where
        X: 'scope,
    {
        let (parcels, arriving) = sync_channel(WAITING);
        let (used, spare) = channel();
        let mut cursor = Self {
            path: capture.path().to_owned(),
            file: capture.file().to_owned(),
            format: capture.format(),
            findings: Findings::default(),
            first_ns: None,
            covered: Covered::NONE,
            batch: Batch::default(),
            at: 0,
            supply: Some(Supply { arriving, used }),
        };
        let reader = Reader::new(capture, reading.clone())?;
        scope.spawn(move || reader.send_all(&parcels, &spare));
        cursor.refill()?;
        Ok(cursor)
    }

    /// Reads the whole capture into memory and walks it in time order; packets with equal times
    /// keep the order of the file.
    pub fn sorted(capture: Feed, reading: &Reading<X>) -> Result<Self, StreamError> {
        let mut reader = Reader::new(capture, reading.clone())?;
        let mut read = Batch::<X>::default();
        while reader.append(&mut read)? {}
        let batch = read.sorted();
        let times = batch.times();
        let first_ns = times.first().copied();
        reader.intake.keyed = times.len() as u64;
        reader.intake.first_ns = first_ns.unwrap_or(0);
        reader.intake.last_ns = times.last().copied().unwrap_or(0);
        reader.series = Series::default();
        let cut = reader.intake.first_ns.saturating_add(reading.trim_ns);
        reader.series.record_all(&times[times.partition_point(|&time| time < cut)..]);
        Ok(Self {
            path: reader.capture.path().to_owned(),
            file: reader.capture.file().to_owned(),
            format: reader.capture.format(),
            covered: reader.covered(),
            findings: reader.findings(),
            first_ns,
            batch,
            at: 0,
            supply: None,
        })
    }

    /// What people are told of the capture.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where its bytes lie, where it is one file.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// The file's format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Time of the first packet with a key of the whole capture.
    pub fn first_ns(&self) -> Option<u64> {
        self.first_ns
    }

    /// From when to when there are records, whatever they hold; as far as that is known before the
    /// capture has been read to its end.
    pub fn covered(&self) -> Covered {
        let until_ns = if self.supply.is_some() { u64::MAX } else { self.covered.until_ns };
        Covered { until_ns, ..self.covered }
    }

    /// What was found out; complete when the walk is.
    pub fn take_findings(&mut self) -> Findings {
        std::mem::take(&mut self.findings)
    }

    /// Times and keys of the next packets, and what is shown of them if it was to be kept. Empty
    /// at the end only.
    #[inline]
    pub fn next(&self) -> (&[u64], &[u64], &[X::Shown]) {
        let (times, keys, shown) = (self.batch.times(), self.batch.keys(), &self.batch.shown);
        let end = times.len().min(self.at + BATCH);
        let range = self.at..end;
        (&times[range.clone()], &keys[range.clone()], shown.get(range).unwrap_or_default())
    }

    /// Takes the first `count` packets of those that [`Self::next`] shows.
    #[inline]
    pub fn advance(&mut self, count: usize) -> Result<(), StreamError> {
        self.at += count;
        if self.at >= self.batch.packets { self.refill() } else { Ok(()) }
    }

    /// Takes the next batch that is not empty, if there is one.
    fn refill(&mut self) -> Result<(), StreamError> {
        while self.at >= self.batch.packets
            && let Some(Supply { arriving, used }) = &self.supply
        {
            let Ok(parcel) = arriving.recv() else { break };
            let before = std::mem::replace(&mut self.batch, parcel.batch);
            // Nobody takes it back when the reader has come to its end.
            let _ = used.send(before);
            self.at = 0;
            (self.first_ns, self.covered) = (parcel.first_ns, parcel.covered);
            self.findings = parcel.findings.unwrap_or_default();
            if !parcel.more? {
                self.supply = None;
            }
        }
        Ok(())
    }
}
