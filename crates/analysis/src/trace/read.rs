//! Reads the records of some cores, in two passes. A file that is cut off or damaged gives what
//! stands before.
//!
//! A core's records come in the order in which they ended, so that a long one comes after all that
//! lie in it. The first pass finds out for each block of the file how far back the records behind it
//! reach. With that, the second one says with each block up to when a core's time is known, and nobody
//! has to hold more of a trace than its longest record covers.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use super::{MAGIC, RECORD_LEN, Record, TraceError, Unreadable};

/// Records that are read at a time: so few that they stay in the processor's cache.
pub(super) const BLOCK: u64 = 1 << 12;

/// What the reader found out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// Whole records in the file.
    pub records: u64,
    /// Bytes of a last record that is not whole.
    pub rest: u64,
    /// Where the file holds what no tracer writes, in bytes from its start; nothing behind is read.
    pub damaged_at: Option<u64>,
    /// Records that had no room, by core, of all cores.
    pub lost: BTreeMap<u16, u64>,
}

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
    pub(super) from_ns: u64,
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

/// The records of some cores.
#[derive(Debug)]
pub struct Trace {
    pub(super) path: PathBuf,
    pub(super) file: File,
    /// The cores, ascending.
    pub(super) cores: Vec<u16>,
    /// The place of each core among `cores`, if it has one.
    pub(super) places: Vec<Option<u16>>,
    /// Records of a block, and blocks of a part at least.
    pub(super) block: u64,
    pub(super) part: usize,
    /// For each block and each core, what comes behind it.
    pub(super) ahead: Vec<Ahead>,
    /// All parts, in the order of time.
    pub(super) parts: Vec<Part>,
    /// What the reader found out.
    pub notes: Notes,
}

impl Trace {
    /// The cores whose records are read, ascending.
    pub fn cores(&self) -> &[u16] {
        &self.cores
    }

    /// The parts that can be laid out by themselves, in the order of time; at least one.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Hands over the records of a part block by block: the core's place among [`cores`](Self::cores),
    /// its records in the order of the file, and what comes behind the block. Ends at an error of
    /// `take`.
    pub fn read<E: From<TraceError>>(
        &self,
        part: &Part,
        mut take: impl FnMut(usize, &[Record], Ahead) -> Result<(), E>,
    ) -> Result<(), E> {
        let cores = self.cores.len();
        let mut buffer = Vec::new();
        let mut found = vec![Vec::new(); cores];
        for block in part.blocks.clone() {
            let records = self.block(block, &mut buffer).map_err(|source| self.io(source))?;
            for bytes in records {
                let record = Record::decode(bytes);
                if let Some(place) = self.places[usize::from(record.cpu)] {
                    found[usize::from(place)].push(record);
                }
            }
            let is_last = block + 1 == part.blocks.end;
            for (place, records) in found.iter_mut().enumerate() {
                let until = part.until.get(place).filter(|_| is_last);
                let from = part.from.get(place).filter(|_| block == part.blocks.start);
                // The file may have been cut since it was looked through.
                let until = until.map_or(records.len(), |cut| cut.records.min(records.len()));
                let from = from.map_or(0, |cut| cut.records.min(until));
                take(place, &records[from..until], self.ahead[block * cores + place])?;
                records.clear();
            }
        }
        Ok(())
    }

    /// The records of a block, all cores', by way of a buffer.
    pub(super) fn block<'a>(
        &self,
        block: usize,
        buffer: &'a mut Vec<u8>,
    ) -> std::io::Result<&'a [[u8; RECORD_LEN]]> {
        let first = block as u64 * self.block;
        let asked = self.notes.records.saturating_sub(first).min(self.block);
        buffer.resize(self.block as usize * RECORD_LEN, 0);
        let read = fill(&self.file, &mut buffer[..asked as usize * RECORD_LEN], offset(first))?;
        Ok(buffer[..read].as_chunks().0)
    }

    pub(super) fn io(&self, error: std::io::Error) -> TraceError {
        Unreadable::Io(error).of(&self.path)
    }
}

impl Notes {
    pub(super) fn lose(&mut self, cpu: u16, records: u64) {
        let lost = self.lost.entry(cpu).or_default();
        *lost = lost.saturating_add(records);
    }

    /// Adds what was read next.
    pub(super) fn add(&mut self, next: Self) {
        self.records += next.records;
        self.rest = next.rest;
        self.damaged_at = next.damaged_at;
        for (cpu, records) in next.lost {
            self.lose(cpu, records);
        }
    }
}

/// Where a record begins in the file.
pub(super) fn offset(record: u64) -> u64 {
    MAGIC.len() as u64 + record * RECORD_LEN as u64
}

/// Reads up to the end of a buffer or of the file; returns how many bytes.
pub(super) fn fill(file: &File, buffer: &mut [u8], at: u64) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], at + filled as u64) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::super::kind;
    use super::*;
    use crate::capture::LATEST_NS;
    use proptest::prelude::*;
    use rand_xoshiro::SplitMix64;
    use rand_xoshiro::rand_core::{Rng, SeedableRng};
    use std::io::Write;

    fn file(records: &[Record]) -> Vec<u8> {
        records.iter().flat_map(|record| record.encode()).collect()
    }

    /// What stands behind the magic, and the records of each core.
    fn read(bytes: &[u8], wanted: &[u16]) -> (Notes, BTreeMap<u16, Vec<Record>>) {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(&[&MAGIC, bytes].concat()).expect("room");
        let trace = Trace::open(file.path(), wanted).expect("a trace");
        let mut found: BTreeMap<u16, Vec<Record>> = BTreeMap::new();
        let mut last: BTreeMap<u16, Ahead> = BTreeMap::new();
        found.extend(wanted.iter().map(|&cpu| (cpu, Vec::new())));
        let take = |place: usize, records: &[Record], ahead: Ahead| {
            let cpu = trace.cores()[place];
            let mut with = Ahead::NONE;
            records.iter().for_each(|record| with.add(record));
            let before = last.insert(cpu, ahead);
            assert!(before.is_none_or(|before| before == with.then(ahead)));
            found.get_mut(&cpu).expect("a wanted core").extend(records);
            Ok::<_, TraceError>(())
        };
        let whole = Part { blocks: 0..trace.ahead.len() / wanted.len(), ..Part::default() };
        trace.read(&whole, take).expect("a file that stays");
        assert!(last.values().all(|ahead| *ahead == Ahead::NONE));
        (trace.notes, found)
    }

    fn record() -> impl Strategy<Value = Record> {
        let times = (0..LATEST_NS, any::<u32>(), 1..=255u8, any::<u8>(), 0..3u16);
        (times, any::<u64>(), any::<u32>(), any::<u32>()).prop_map(
            |((start_ns, dur_ns, kind, flags, cpu), aux, id, steal_ns)| Record {
                start_ns,
                dur_ns,
                kind,
                flags,
                cpu,
                aux,
                id,
                steal_ns,
            },
        )
    }

    proptest! {
        #[test]
        fn records_round_trip(records in proptest::collection::vec(record(), 0..50)) {
            let (notes, cores) = read(&file(&records), &[0, 1, 2]);
            for (cpu, found) in &cores {
                let of_core: Vec<_> = records.iter().filter(|r| r.cpu == *cpu).copied().collect();
                prop_assert_eq!(found, &of_core);
            }
            prop_assert_eq!(notes.records, records.len() as u64);
            prop_assert_eq!(notes.damaged_at, None);
        }

        #[test]
        fn a_cut_file_gives_what_stands_before(
            records in proptest::collection::vec(record(), 1..50),
            cut in 0..1600usize,
        ) {
            let bytes = file(&records);
            let cut = cut.min(bytes.len());
            let (notes, _) = read(&bytes[..cut], &[0, 1, 2]);
            prop_assert_eq!(notes.records, (cut / RECORD_LEN) as u64);
            prop_assert_eq!(notes.rest, (cut % RECORD_LEN) as u64);
        }

        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let (notes, _) = read(&bytes, &[0]);
            prop_assert!(notes.records <= (bytes.len() / RECORD_LEN) as u64);
        }
    }

    #[test]
    fn a_block_tells_what_comes_behind_it_and_damage_ends_all_of_them() {
        // Read by two threads, and damaged where the second one reads.
        let mut random = SplitMix64::seed_from_u64(1);
        let mut records: Vec<_> = (0..70 * BLOCK)
            .map(|at| Record {
                start_ns: 1_000 * at + random.next_u64() % 10_000_000,
                kind: [kind::TASK, kind::IRQ][at as usize % 2],
                cpu: (random.next_u64() % 3) as u16,
                ..Record::default()
            })
            .collect();
        assert_eq!(read(&file(&records), &[0, 2]).1[&2].len(), {
            records.iter().filter(|record| record.cpu == 2).count()
        });
        let bad = 66 * BLOCK as usize + 5;
        records[bad].kind = 0;
        let (notes, cores) = read(&file(&records), &[1]);
        assert_eq!(notes.records, bad as u64);
        assert_eq!(notes.damaged_at, Some(offset(bad as u64)));
        let of_core = records[..bad].iter().filter(|record| record.cpu == 1);
        assert!(of_core.eq(&cores[&1]));
    }

    #[test]
    fn damage_ends_the_trace() {
        let good = Record { kind: kind::IRQ, start_ns: 5, ..Record::default() };
        let bad = Record { kind: kind::IRQ, start_ns: u64::MAX, ..good };
        let (notes, cores) = read(&file(&[good, bad, good]), &[0]);
        assert_eq!(cores[&0], [good]);
        assert_eq!(notes.damaged_at, Some(40));
    }

    #[test]
    fn what_was_lost_is_counted_on_all_cores() {
        let lost = Record { kind: kind::LOST, cpu: 7, aux: 12, ..Record::default() };
        let (notes, cores) = read(&file(&[lost, lost]), &[0]);
        assert_eq!(notes.lost, BTreeMap::from([(7, 24)]));
        assert!(cores[&0].is_empty());
    }
}
