//! The first pass over a trace: how far back the records behind each block reach, and where a trace can
//! be cut into parts that know nothing of each other.

use std::ops::Range;
use std::thread;

use super::read::{Notes, Trace, fill, offset};
use super::{MAGIC, RECORD_LEN, Record, kind};
use crate::capture::LATEST_NS;

/// Blocks that are worth a thread.
const SHARE: u64 = 64;
/// Blocks of a part at least.
pub(super) const PART: usize = 64;

/// What the records of a core behind a block are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// The earliest time that one of them tells of; [`u64::MAX`] when there are none.
    pub earliest_ns: u64,
    /// The start of the first of a task or of idle.
    pub base_ns: Option<u64>,
    /// The end of the first.
    pub end_ns: Option<u64>,
}

impl Ahead {
    /// No records.
    pub const NONE: Self = Self { earliest_ns: u64::MAX, base_ns: None, end_ns: None };

    /// Counts a record in that comes behind those so far.
    pub(crate) fn add(&mut self, record: &Record) {
        self.earliest_ns = self.earliest_ns.min(record.since_ns());
        if self.base_ns.is_none() && record.is_base() {
            self.base_ns = Some(record.start_ns);
        }
        self.end_ns = self.end_ns.or_else(|| Some(record.end_ns()));
    }

    /// These records, and then those of `next`.
    pub(crate) fn then(self, next: Self) -> Self {
        Self {
            earliest_ns: self.earliest_ns.min(next.earliest_ns),
            base_ns: self.base_ns.or(next.base_ns),
            end_ns: self.end_ns.or(next.end_ns),
        }
    }
}

/// A moment of a core that no interval covers: what begins before it has ended by then, also in the order
/// of the file.
///
/// It is the end of a stretch of a task or of idle that nothing else lies in, so that all records before
/// that one have ended some time before the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// When that stretch began.
    from_ns: u64,
    /// The moment.
    pub at_ns: u64,
    /// The core's records of its block that come before it.
    pub records: usize,
}

/// Neighbouring blocks whose records can be laid out without those of others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// The blocks. Neighbouring parts have one in common, in which they are cut.
    pub blocks: Range<usize>,
    /// For each core, where it begins in the first block; empty at the beginning of the file.
    pub from: Vec<Cut>,
    /// For each core, where it ends in the last block; empty at the end of the file.
    pub until: Vec<Cut>,
}

/// What a core's records of one block are like.
#[derive(Clone, Copy)]
struct Within {
    ahead: Ahead,
    records: usize,
    /// When the last of them ends.
    latest_ns: u64,
    /// A place to cut, as far as one block tells.
    cut: Option<Cut>,
}

impl Within {
    const NONE: Self = Self { ahead: Ahead::NONE, records: 0, latest_ns: 0, cut: None };

    #[inline]
    fn add(&mut self, record: &Record) {
        self.ahead.add(record);
        self.cut = self.cut.filter(|cut| cut.at_ns <= record.since_ns());
        // Nobody knows the end of a long stretch by its record alone.
        let long = matches!(record.kind, kind::TASK | kind::IDLE) && record.dur_ns == u32::MAX;
        let end = if long && !record.is_base() { u64::MAX } else { record.end_ns() };
        let records = self.records;
        self.records += 1;
        // The first record may have begun before those of the block before it ended.
        let alone = records > 0 && record.start_ns >= self.latest_ns;
        if self.cut.is_none() && alone && record.is_base() && !long && record.dur_ns > 0 {
            let cut = Cut { from_ns: record.start_ns, at_ns: end, records: self.records };
            self.cut = Some(cut);
        }
        self.latest_ns = self.latest_ns.max(end);
    }
}

/// What the first pass found in neighbouring blocks.
#[derive(Default)]
struct Found {
    /// For each block and each core, what is in it.
    within: Vec<Within>,
    notes: Notes,
    /// Nothing is read behind it.
    ended: bool,
}

impl Trace {
    /// Looks through the blocks of so many bytes behind the magic, side by side.
    pub(super) fn survey(&mut self, length: u64) -> std::io::Result<()> {
        let blocks = length.div_ceil(RECORD_LEN as u64 * self.block);
        let workers = thread::available_parallelism().map_or(1, usize::from) as u64;
        let share = blocks.div_ceil(workers).max(SHARE);
        let this = &*self;
        let parts: Vec<_> = thread::scope(|scope| {
            let starts = (0..blocks).step_by(share as usize);
            let threads: Vec<_> = starts
                .map(|first| (first, blocks.min(first + share)))
                .map(|(first, last)| scope.spawn(move || this.look_at(first..last, length)))
                .collect();
            threads.into_iter().map(|part| part.join().expect("readers do not panic")).collect()
        });
        let mut within = Vec::new();
        for part in parts {
            let part = part?;
            within.extend(part.within);
            self.notes.add(part.notes);
            if part.ended {
                break;
            }
        }
        self.settle(&within);
        Ok(())
    }

    /// Finds out what comes behind each block, and in which blocks every core can be cut.
    fn settle(&mut self, within: &[Within]) {
        let cores = self.cores.len();
        let mut latest = vec![0; cores];
        let mut cuts: Vec<Option<Cut>> = Vec::with_capacity(within.len());
        for block in within.chunks_exact(cores.max(1)) {
            for (found, latest) in block.iter().zip(&mut latest) {
                cuts.push(found.cut.filter(|cut| *latest <= cut.from_ns));
                *latest = found.latest_ns.max(*latest);
            }
        }
        let mut behind = vec![Ahead::NONE; cores];
        self.ahead = vec![Ahead::NONE; within.len()];
        for place in (0..within.len()).rev() {
            let behind = &mut behind[place % cores];
            cuts[place] = cuts[place].filter(|cut| cut.at_ns <= behind.earliest_ns);
            self.ahead[place] = *behind;
            *behind = within[place].ahead.then(*behind);
        }
        let (mut first, mut from) = (0, Vec::new());
        for (block, cuts) in cuts.chunks_exact(cores.max(1)).enumerate() {
            let cut: Option<Vec<Cut>> = cuts.iter().copied().collect();
            if let Some(cut) = cut.filter(|_| block >= first + self.part) {
                let until = cut.clone();
                self.parts.push(Part { blocks: first..block + 1, from, until });
                (first, from) = (block, cut);
            }
        }
        let blocks = first..within.len() / cores.max(1);
        self.parts.push(Part { blocks, from, until: Vec::new() });
    }

    fn look_at(&self, blocks: Range<u64>, length: u64) -> std::io::Result<Found> {
        let mut part = Found::default();
        let mut buffer = vec![0; self.block as usize * RECORD_LEN];
        for block in blocks {
            let at = offset(block * self.block);
            let asked = (length + MAGIC.len() as u64 - at).min(buffer.len() as u64) as usize;
            let read = fill(&self.file, &mut buffer[..asked], at)?;
            let first = part.within.len();
            part.within.resize(first + self.cores.len(), Within::NONE);
            let (records, rest) = buffer[..read].as_chunks::<RECORD_LEN>();
            for (place, bytes) in records.iter().enumerate() {
                let record = Record::decode(bytes);
                if record.start_ns > LATEST_NS || record.kind == 0 {
                    part.notes.damaged_at = Some(at + (place * RECORD_LEN) as u64);
                    part.ended = true;
                    return Ok(part);
                }
                part.notes.records += 1;
                if record.kind == kind::LOST {
                    part.notes.lose(record.cpu, record.aux);
                }
                if let Some(core) = self.places[usize::from(record.cpu)] {
                    part.within[first + usize::from(core)].add(&record);
                }
            }
            part.notes.rest = rest.len() as u64;
            if read < asked {
                part.ended = true; // somebody cut the file meanwhile
                return Ok(part);
            }
        }
        Ok(part)
    }
}
