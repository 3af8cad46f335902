//! The first pass over a trace: how far back the records behind each block reach.

use std::ops::Range;
use std::thread;

use super::read::{BLOCK, Notes, Trace, fill, offset};
use super::{MAGIC, RECORD_LEN, Record, kind};
use crate::capture::LATEST_NS;

/// Blocks that are worth a thread.
const SHARE: u64 = 64;

/// What the records of a core behind a block are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// The earliest start among them; [`u64::MAX`] when there are none.
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
        self.earliest_ns = self.earliest_ns.min(record.start_ns);
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

/// What the first pass found in neighbouring blocks.
#[derive(Default)]
struct Part {
    /// For each block and each core, what is in it.
    within: Vec<Ahead>,
    notes: Notes,
    /// Nothing is read behind it.
    ended: bool,
}

impl Trace {
    /// Looks through the blocks of so many bytes behind the magic, side by side.
    pub(super) fn survey(&mut self, length: u64) -> std::io::Result<()> {
        let blocks = length.div_ceil(RECORD_LEN as u64 * BLOCK);
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
        for part in parts {
            let part = part?;
            self.ahead.extend(part.within);
            self.notes.add(part.notes);
            if part.ended {
                break;
            }
        }
        let cores = self.cores.len();
        let mut behind = vec![Ahead::NONE; cores];
        for block in self.ahead.chunks_exact_mut(cores.max(1)).rev() {
            for (within, behind) in block.iter_mut().zip(&mut behind) {
                let with = within.then(*behind);
                *within = std::mem::replace(behind, with);
            }
        }
        Ok(())
    }

    fn look_at(&self, blocks: Range<u64>, length: u64) -> std::io::Result<Part> {
        let mut part = Part::default();
        let mut buffer = vec![0; BLOCK as usize * RECORD_LEN];
        for block in blocks {
            let at = offset(block * BLOCK);
            let asked = (length + MAGIC.len() as u64 - at).min(buffer.len() as u64) as usize;
            let read = fill(&self.file, &mut buffer[..asked], at)?;
            let first = part.within.len();
            part.within.resize(first + self.cores.len(), Ahead::NONE);
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
