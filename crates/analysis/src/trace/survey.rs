//! The first pass over a trace: how far back the records behind each block reach, and where a trace can
//! be cut into parts that know nothing of each other.

use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::thread;

use super::read::{Ahead, BLOCK, Cut, Notes, Part, Trace, fill, offset};
use super::{MAGIC, RECORD_LEN, Record, TraceError, Unreadable, kind};
use crate::capture::LATEST_NS;

/// Blocks that are worth a thread.
const SHARE: u64 = 64;
/// Blocks of a part at least.
const PART: usize = 128;

/// What a core's records of one block are like.
#[derive(Clone, Copy)]
struct Within {
    ahead: Ahead,
    /// When the last of them ends.
    latest_ns: u64,
}

impl Within {
    const NONE: Self = Self { ahead: Ahead::NONE, latest_ns: 0 };

    #[inline]
    fn add(&mut self, record: &Record) {
        if self.ahead.end_ns.is_some() && self.ahead.base_ns.is_some() {
            self.ahead.earliest_ns = self.ahead.earliest_ns.min(record.since_ns());
        } else {
            self.ahead.add(record);
        }
        self.latest_ns = self.latest_ns.max(latest_end(record));
    }
}

/// When a record ends at the latest: nobody knows the end of a long stretch by its record alone.
#[inline]
fn latest_end(record: &Record) -> u64 {
    if record.dur_ns == u32::MAX && is_long(record) && !record.is_base() {
        return u64::MAX;
    }
    record.end_ns()
}

/// Whether it is a stretch that lasted longer than a record can tell.
fn is_long(record: &Record) -> bool {
    matches!(record.kind, kind::TASK | kind::IDLE) && record.dur_ns == u32::MAX
}

/// Looks for a moment of a core at which its records of one block can be cut.
struct Search {
    records: usize,
    /// When the last of the core's records so far ends.
    latest_ns: u64,
    cut: Option<Cut>,
}

impl Search {
    fn add(&mut self, record: &Record) {
        self.cut = self.cut.filter(|cut| cut.at_ns <= record.since_ns());
        let end = latest_end(record);
        self.records += 1;
        // The first record may have begun before those of the block before it ended.
        let alone = self.records > 1 && record.start_ns >= self.latest_ns;
        let base = record.is_base() && !is_long(record) && record.dur_ns > 0;
        if self.cut.is_none() && alone && base {
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
    /// Opens a trace for the cores `wanted`, and looks through it once.
    ///
    /// # Panics
    /// If a thread cannot be started.
    pub fn open(path: &Path, wanted: &[u16]) -> Result<Self, TraceError> {
        Self::open_in(path, wanted, BLOCK, PART)
    }

    /// The same with blocks of so many records, and parts of so many blocks.
    pub(crate) fn open_in(
        path: &Path,
        wanted: &[u16],
        block: u64,
        part: usize,
    ) -> Result<Self, TraceError> {
        let io = |error| Unreadable::Io(error).of(path);
        let file = File::open(path).map_err(io)?;
        let mut magic = [0; MAGIC.len()];
        let read = fill(&file, &mut magic, 0).map_err(io)?;
        if read < magic.len() || magic != MAGIC {
            return Err(Unreadable::NotATrace.of(path));
        }
        let length = file.metadata().map_err(io)?.len() - MAGIC.len() as u64;
        let mut cores = wanted.to_vec();
        cores.sort_unstable();
        cores.dedup();
        let mut places = vec![None; usize::from(u16::MAX) + 1];
        for (place, &cpu) in cores.iter().enumerate() {
            places[usize::from(cpu)] = Some(place as u16);
        }
        let path = path.to_owned();
        let mut trace = Self {
            path,
            file,
            cores,
            places,
            block,
            part,
            ahead: Vec::new(),
            parts: Vec::new(),
            notes: Notes::default(),
        };
        trace.survey(length).map_err(|source| trace.io(source))?;
        Ok(trace)
    }

    /// Looks through the blocks of so many bytes behind the magic, side by side.
    fn survey(&mut self, length: u64) -> std::io::Result<()> {
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
        self.settle(&within)
    }

    /// Finds out what comes behind each block, and in which blocks every core can be cut.
    fn settle(&mut self, within: &[Within]) -> std::io::Result<()> {
        let cores = self.cores.len().max(1);
        let mut behind = vec![Ahead::NONE; cores];
        self.ahead = vec![Ahead::NONE; within.len()];
        for place in (0..within.len()).rev() {
            let behind = &mut behind[place % cores];
            self.ahead[place] = *behind;
            *behind = within[place].ahead.then(*behind);
        }
        let mut latest = vec![0; cores];
        let (mut first, mut from) = (0, Vec::new());
        for (block, found) in within.chunks_exact(cores).enumerate() {
            if block >= first + self.part
                && let Some(cut) = self.cut(block, &latest)?
            {
                let until = cut.clone();
                self.parts.push(Part { blocks: first..block + 1, from, until });
                (first, from) = (block, cut);
            }
            for (latest, found) in latest.iter_mut().zip(found) {
                *latest = found.latest_ns.max(*latest);
            }
        }
        let blocks = first..within.len() / cores;
        self.parts.push(Part { blocks, from, until: Vec::new() });
        Ok(())
    }

    /// Where every core can be cut in a block, before which records end at the `latest` times.
    fn cut(&self, block: usize, latest: &[u64]) -> std::io::Result<Option<Vec<Cut>>> {
        let search = |&latest_ns| Search { records: 0, latest_ns, cut: None };
        let mut cores: Vec<Search> = latest.iter().map(search).collect();
        for bytes in self.block(block, &mut Vec::new())? {
            let record = Record::decode(bytes);
            if let Some(core) = self.places[usize::from(record.cpu)] {
                cores[usize::from(core)].add(&record);
            }
        }
        let ahead = &self.ahead[block * cores.len()..];
        let last = cores.iter().zip(ahead);
        Ok(last
            .map(|(core, behind)| core.cut.filter(|cut| cut.at_ns <= behind.earliest_ns))
            .collect())
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
