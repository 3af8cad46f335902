//! Writes what a tap keeps: records in the order of time, into one file or a row of numbered ones.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;

use tailtap_analysis::marks::{MOST_SAMPLES, MarkCounts, Sample};
use tailtap_analysis::stamps::{Clock, TapCounts};

use crate::file;
use crate::tap::file::{Format, Marked, Store};
use crate::tap::ring::{Counters, Record};

/// Records this much younger than the newest are kept back for sorting. Stamps of one CPU come in
/// order; those of two can cross by as long as packets wait on one of them between stamp and ring:
/// for an interrupt, for ksoftirqd, or for a hypervisor that took the CPU away.
pub const HOLD_NS: u64 = 100_000_000;

/// When to go on to the next file; never, unless told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rotation {
    /// No file gets larger, unless a single record is.
    pub bytes: Option<u64>,
    /// No file has packets further apart.
    pub time_ns: Option<u64>,
}

impl Rotation {
    fn is_on(self) -> bool {
        self.bytes.is_some() || self.time_ns.is_some()
    }
}

/// What to write, and where.
#[derive(Clone, Debug)]
pub struct Target {
    /// The file; with rotation a number is put before its last suffix.
    pub path: PathBuf,
    /// The name of the link.
    pub link: String,
    /// The format.
    pub format: Format,
    /// The clock that the file says.
    pub clock: Clock,
    /// What makes that clock of CLOCK_MONOTONIC, to be added.
    pub shift: u64,
    /// When to go on to the next file.
    pub rotation: Rotation,
    /// The sample that is taken at first.
    pub sample: Sample,
}

/// A file could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {source}", path.display())]
pub struct WriteError {
    /// The file.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

/// A tap's file that is being written. Killed at any time, it leaves a readable file.
#[derive(Debug)]
pub struct Writer {
    target: Target,
    pending: Vec<Record>,
    store: Store,
    /// Records on their way to the file.
    bytes: Vec<u8>,
    current: Current,
    /// Files that are complete.
    done: Vec<PathBuf>,
    /// What these hold and what was lost while they were written.
    counted: MarkCounts,
    /// Packets from the ring that have no key.
    unkeyed: u64,
}

/// The file that is being written.
#[derive(Debug)]
struct Current {
    path: PathBuf,
    file: File,
    /// Bytes in it.
    len: u64,
    /// Records in it.
    records: u64,
    /// The time of the first record.
    first: Option<u64>,
    /// The samples that it is of, in the order of time, on the clock of the file.
    samples: Vec<Sample>,
}

impl Writer {
    /// Creates the first file, or empties it.
    pub fn create(target: Target) -> Result<Self, WriteError> {
        let first = Sample { since_ns: target.sample.since_ns + target.shift, ..target.sample };
        let current = Current::create(&target, 0, first)?;
        Ok(Self {
            target,
            pending: Vec::new(),
            store: Store::default(),
            bytes: Vec::new(),
            current,
            done: Vec::new(),
            counted: MarkCounts::default(),
            unkeyed: 0,
        })
    }

    /// Takes a record from the ring. Nothing is written before [`Writer::flush`].
    #[inline]
    pub fn push(&mut self, record: Record, rest: &[AtomicU64]) {
        self.pending.push(match self.target.format {
            Format::Stamps => record,
            Format::Pcap { .. } => [record[0], self.store.take(record[1], rest)],
            Format::Marks(marking) => match self.store.mark(&marking, record[1], rest) {
                Marked::At(place) => [record[0], place],
                Marked::NoKey => {
                    self.unkeyed += 1;
                    return;
                }
            },
        });
    }

    /// Packets from the ring that have no key.
    pub fn unkeyed(&self) -> u64 {
        self.unkeyed
    }

    /// Packets of which the kernel's side had another hash for samples.
    pub fn strange(&self) -> u64 {
        self.store.strange
    }

    /// Whether the file has room for one more change of the sample.
    pub fn takes_change(&self) -> bool {
        self.current.samples.len() < MOST_SAMPLES
    }

    /// Says that another sample is taken from a time of CLOCK_MONOTONIC on, also in the file.
    pub fn change_sample(&mut self, sample: Sample) -> Result<(), WriteError> {
        let sample = Sample { since_ns: sample.since_ns + self.target.shift, ..sample };
        self.current.samples.push(sample);
        if !self.target.format.has_counts() {
            return Ok(());
        }
        self.current.write_header(&self.target, None)
    }

    /// Writes what came [`HOLD_NS`] before the last record, or, if the ring `is_empty`, before
    /// `now`. The counters are for the files that are completed meanwhile.
    pub fn flush(
        &mut self,
        now: u64,
        is_empty: bool,
        counters: Counters,
    ) -> Result<(), WriteError> {
        self.sort();
        let Some(newest) = self.pending.last() else { return Ok(()) };
        let until = if is_empty { now } else { now.min(newest[0]) }.saturating_sub(HOLD_NS);
        let ready = self.pending.partition_point(|record| record[0] < until);
        self.write(ready, counters)
    }

    /// Writes everything and completes the last file. What the tap counted, and its files; or
    /// itself, to be abandoned.
    #[expect(clippy::result_large_err, reason = "once for each run")]
    pub fn finish(
        mut self,
        counters: Counters,
    ) -> Result<(MarkCounts, Vec<PathBuf>), (WriteError, Self)> {
        self.sort();
        let written = self.write(self.pending.len(), counters);
        match written.and_then(|()| self.complete(self.total(counters))) {
            Ok(()) => Ok((self.counted, self.done)),
            Err(error) => Err((error, self)),
        }
    }

    /// Completes the last file with what is in it, if that can be written: everything else is lost.
    pub fn abandon(mut self, counters: Counters) {
        let _ = self.complete(self.total(counters));
    }

    /// Records in all files.
    pub fn stored(&self) -> u64 {
        self.counted.tap.stored + self.current.records
    }

    fn total(&self, counters: Counters) -> MarkCounts {
        let (seen, stored) = (counters.head + counters.lost - self.unkeyed, self.stored());
        self.counts(counters, stored, seen - stored)
    }

    fn counts(&self, counters: Counters, stored: u64, lost: u64) -> MarkCounts {
        let Counters { other, filtered, unsampled, .. } = counters;
        let other = other + self.unkeyed;
        MarkCounts {
            tap: TapCounts { seen: stored + lost, stored, lost, other },
            filtered,
            unsampled,
        }
    }

    fn sort(&mut self) {
        let by_time = |record: &Record| record[0];
        if !self.pending.is_sorted_by_key(by_time) {
            self.pending.sort_by_key(by_time);
        }
    }

    fn write(&mut self, count: usize, counters: Counters) -> Result<(), WriteError> {
        let mut records = 0;
        for place in 0..count {
            let record = self.pending[place];
            let before = self.bytes.len();
            self.target.format.encode(record, self.target.shift, &self.store, &mut self.bytes);
            if self.target.rotation.is_on() && self.is_full(record[0]) {
                let next = self.bytes.split_off(before);
                self.put(records)?;
                self.rotate(counters)?;
                (self.bytes, records) = (next, 0);
            }
            self.current.first.get_or_insert(record[0]);
            records += 1;
        }
        self.put(records)?;
        self.pending.drain(..count);
        if self.target.format.is_stored() {
            self.store.forget(&self.pending);
        }
        Ok(())
    }

    /// Whether a record of this time, the last in `bytes`, belongs into the next file.
    fn is_full(&self, time: u64) -> bool {
        let Rotation { bytes, time_ns } = self.target.rotation;
        let Some(first) = self.current.first else { return false };
        bytes.is_some_and(|most| self.current.len + self.bytes.len() as u64 > most)
            || time_ns.is_some_and(|longest| time.saturating_sub(first) >= longest)
    }

    /// Moves `bytes`, which are so many records, to the file.
    fn put(&mut self, records: u64) -> Result<(), WriteError> {
        let Current { path, file, len, records: there, .. } = &mut self.current;
        let result = file.write_all(&self.bytes);
        if let Err(source) = result {
            // What found room stays, but for a record that did not find room as a whole.
            let room = file.metadata().map_or(0, |metadata| metadata.len().saturating_sub(*len));
            let (whole, stored) = self.target.format.whole(&self.bytes, room as usize);
            let _ = file.set_len(*len + whole as u64);
            *len += whole as u64;
            *there += stored;
            self.bytes.clear();
            return Err(WriteError { path: path.clone(), source });
        }
        *len += self.bytes.len() as u64;
        *there += records;
        self.bytes.clear();
        Ok(())
    }

    fn rotate(&mut self, counters: Counters) -> Result<(), WriteError> {
        // What the ring lost until now, the file that was being written lost.
        let total = self.counts(counters, self.stored(), counters.lost);
        let sample = *self.current.samples.last().expect("there is one");
        let next = Current::create(&self.target, self.done.len() + 1, sample)?;
        self.complete(total)?;
        self.current = next;
        Ok(())
    }

    /// Completes the current file, so that all files together have counted `total`.
    fn complete(&mut self, total: MarkCounts) -> Result<(), WriteError> {
        let before = std::mem::replace(&mut self.counted, total);
        let counts = MarkCounts {
            tap: TapCounts {
                seen: total.tap.seen - before.tap.seen,
                stored: total.tap.stored - before.tap.stored,
                lost: total.tap.lost - before.tap.lost,
                other: total.tap.other - before.tap.other,
            },
            filtered: total.filtered - before.filtered,
            unsampled: total.unsampled - before.unsampled,
        };
        self.done.push(self.current.path.clone());
        if !self.target.format.has_counts() {
            return Ok(()); // it may be a pipe
        }
        self.current.write_header(&self.target, Some(counts))
    }
}

impl Current {
    fn create(target: &Target, number: usize, sample: Sample) -> Result<Self, WriteError> {
        let path = match target.rotation.is_on() {
            true => file::numbered(&target.path, number + 1),
            false => target.path.clone(),
        };
        let samples = vec![sample];
        let header = target.format.header(target.clock, &target.link, None, &samples);
        let len = header.len() as u64;
        let create = || -> io::Result<File> {
            let mut file = file::create(&path)?;
            file.write_all(&header).inspect_err(|_| {
                // Half a header is no file. Devices and pipes stay.
                if file.metadata().is_ok_and(|metadata| metadata.is_file()) {
                    let _ = std::fs::remove_file(&path);
                }
            })?;
            Ok(file)
        };
        match create() {
            Ok(file) => Ok(Self { path, file, len, records: 0, first: None, samples }),
            Err(source) => Err(WriteError { path, source }),
        }
    }

    /// Writes the header again, and goes on behind the last record.
    fn write_header(
        &mut self,
        target: &Target,
        counts: Option<MarkCounts>,
    ) -> Result<(), WriteError> {
        let header = target.format.header(target.clock, &target.link, counts, &self.samples);
        let file = &mut self.file;
        let written = file
            .seek(SeekFrom::Start(0))
            .and_then(|_| file.write_all(&header))
            .and_then(|()| file.seek(SeekFrom::Start(self.len)));
        written.map(drop).map_err(|source| WriteError { path: self.path.clone(), source })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use tailtap_analysis::stamps::{HEADER_LEN, Header, RECORD_LEN, Stamp};

    fn target(path: &Path, rotation: Rotation) -> Target {
        Target {
            path: path.into(),
            link: "ingress".into(),
            format: Format::Stamps,
            clock: Clock::Monotonic,
            shift: 0,
            rotation,
            sample: Sample::default(),
        }
    }

    fn read(path: &Path) -> (Header, Vec<Stamp>) {
        let bytes = std::fs::read(path).expect("readable");
        let records = bytes[HEADER_LEN..].chunks_exact(RECORD_LEN);
        assert!(records.remainder().is_empty());
        let stamps = records.map(|r| Stamp::decode(r.try_into().expect("sixteen bytes")));
        (Header::decode(&bytes).expect("a header"), stamps.collect::<Vec<_>>())
    }

    #[test]
    fn records_come_out_in_time_order_across_flushes() {
        const STEP: u64 = 10_000;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.stamps");
        let mut writer = Writer::create(target(&path, Rotation::default())).expect("created");
        let total = 10 * HOLD_NS / STEP;
        let counters = Counters { head: total, other: 5, ..Default::default() };
        for id in 0..total {
            // Neighbours swapped.
            writer.push([STEP * (1 + (id ^ 1)), (60 << 32) | (id ^ 1)], &[]);
            if id % 1001 == 0 {
                writer.flush(u64::MAX, false, counters).expect("written");
            }
        }
        assert_eq!(read(&path).0.counts, None);
        let early = read(&path).1.len() as u64;
        assert!(early > total / 2 && early < total);
        let (counts, files) = writer.finish(counters).expect("finished");
        let counts = counts.tap;
        assert_eq!(counts, TapCounts { seen: total, stored: total, lost: 0, other: 5 });
        assert!(files.iter().eq([&path]));
        let (header, stamps) = read(&path);
        assert_eq!(header.counts, Some(counts));
        assert_eq!(header.link, "ingress");
        let expected =
            (0..total).map(|id| Stamp { time_ns: STEP * (1 + id), id: id as u32, frame_len: 60 });
        assert!(stamps.into_iter().eq(expected));
    }

    #[test]
    fn an_empty_ring_keeps_back_by_the_clock() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.stamps");
        let mut writer = Writer::create(target(&path, Rotation::default())).expect("created");
        let counters = Counters { head: 1, ..Default::default() };
        writer.push([1000, 60 << 32], &[]);
        writer.flush(1000 + HOLD_NS, true, counters).expect("written");
        assert!(read(&path).1.is_empty());
        writer.flush(1001 + HOLD_NS, true, counters).expect("written");
        assert_eq!(read(&path).1.len(), 1);
    }

    #[test]
    fn files_end_by_size_and_by_time_and_their_counts_add_up() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.b.stamps");
        let room = (HEADER_LEN + 3 * RECORD_LEN) as u64;
        let rotation = Rotation { bytes: Some(room), time_ns: Some(100) };
        let mut writer = Writer::create(target(&path, rotation)).expect("created");
        // Three by size, two by time, one after a pause.
        for time in [10, 20, 30, 40, 139, 140, 5000] {
            writer.push([time, 60 << 32 | time], &[]);
        }
        let counters = Counters { head: 7, lost: 2, other: 1, ..Default::default() };
        writer.flush(10_000 + HOLD_NS, true, counters).expect("ok");
        let (counts, files) = writer.finish(Counters { lost: 3, ..counters }).expect("finished");
        assert_eq!(counts.tap, TapCounts { seen: 10, stored: 7, lost: 3, other: 1 });
        let names: Vec<_> = files.iter().map(|f| f.file_name().expect("a name")).collect();
        assert_eq!(
            names,
            ["a.b-00001.stamps", "a.b-00002.stamps", "a.b-00003.stamps", "a.b-00004.stamps"]
        );
        let times: Vec<Vec<u64>> =
            files.iter().map(|f| read(f).1.iter().map(|s| s.time_ns).collect()).collect();
        assert_eq!(times, [vec![10, 20, 30], vec![40, 139], vec![140], vec![5000]]);
        let each: Vec<TapCounts> =
            files.iter().map(|f| read(f).0.counts.expect("complete")).collect();
        assert_eq!(each[0], TapCounts { seen: 5, stored: 3, lost: 2, other: 1 });
        assert_eq!(each[3], TapCounts { seen: 2, stored: 1, lost: 1, other: 0 });
        assert_eq!(each.iter().map(|c| c.seen).sum::<u64>(), 10);
    }

    #[test]
    fn times_are_put_on_the_clock_that_the_file_says() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.stamps");
        let target =
            Target { clock: Clock::Realtime, shift: 1 << 60, ..target(&path, Rotation::default()) };
        let mut writer = Writer::create(target).expect("created");
        writer.push([7, 60 << 32], &[]);
        writer.finish(Counters { head: 1, ..Default::default() }).expect("finished");
        let (header, stamps) = read(&path);
        assert_eq!((header.clock, stamps[0].time_ns), (Clock::Realtime, (1 << 60) + 7));
    }

    #[test]
    fn a_full_disk_is_an_error() {
        assert!(Writer::create(target(Path::new("/dev/full"), Rotation::default())).is_err());
        assert!(Path::new("/dev/full").exists());
    }
}
