//! Reads the records of some cores. A file that is cut off or damaged gives what stands before.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use super::{MAGIC, RECORD_LEN, Record, TraceError, kind};
use crate::capture::LATEST_NS;

/// How much of the file is read at a time.
const CHUNK: usize = RECORD_LEN << 13;

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

/// The records of some cores.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Of each core, in the order of the file.
    pub cores: BTreeMap<u16, Vec<Record>>,
    /// What the reader found out.
    pub notes: Notes,
}

impl Trace {
    /// Reads the records of the cores `wanted` from a file.
    pub fn open(path: &Path, wanted: &[u16]) -> Result<Self, TraceError> {
        let io = |source| TraceError::Io { path: path.to_owned(), source };
        let mut file = File::open(path).map_err(io)?;
        let mut magic = [0; MAGIC.len()];
        match file.read_exact(&mut magic) {
            Err(error) if error.kind() != ErrorKind::UnexpectedEof => return Err(io(error)),
            Ok(()) if magic == MAGIC => {}
            _ => return Err(TraceError::NotATrace(path.to_owned())),
        }
        Self::read(file, wanted).map_err(io)
    }

    /// Reads the records behind the magic.
    fn read(mut source: impl Read, wanted: &[u16]) -> std::io::Result<Self> {
        let mut trace = Self::default();
        trace.cores.extend(wanted.iter().map(|&cpu| (cpu, Vec::new())));
        let mut buffer = vec![0; CHUNK];
        let mut filled = 0;
        loop {
            let more = match source.read(&mut buffer[filled..]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                more => more?,
            };
            filled += more;
            if more == 0 {
                trace.notes.rest = filled as u64;
                return Ok(trace);
            }
            let (records, rest) = buffer[..filled].as_chunks::<RECORD_LEN>();
            let rest = rest.len();
            for bytes in records {
                if !trace.take(Record::decode(bytes)) {
                    let before = trace.notes.records * RECORD_LEN as u64;
                    trace.notes.damaged_at = Some(before + MAGIC.len() as u64);
                    return Ok(trace);
                }
            }
            buffer.copy_within(filled - rest..filled, 0);
            filled = rest;
        }
    }

    /// Takes a record in; `false` when no tracer wrote it.
    fn take(&mut self, record: Record) -> bool {
        if record.start_ns > LATEST_NS || record.kind == 0 {
            return false;
        }
        self.notes.records += 1;
        if record.kind == kind::LOST {
            let lost = self.notes.lost.entry(record.cpu).or_default();
            *lost = lost.saturating_add(record.aux);
        }
        if let Some(records) = self.cores.get_mut(&record.cpu) {
            records.push(record);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(records: &[Record]) -> Vec<u8> {
        records.iter().flat_map(|record| record.encode()).collect()
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
            let trace = Trace::read(&file(&records)[..], &[0, 1, 2]).expect("memory reads");
            for (cpu, found) in &trace.cores {
                let of_core: Vec<_> = records.iter().filter(|r| r.cpu == *cpu).copied().collect();
                prop_assert_eq!(found, &of_core);
            }
            prop_assert_eq!(trace.notes.records, records.len() as u64);
            prop_assert_eq!(trace.notes.damaged_at, None);
        }

        #[test]
        fn a_cut_file_gives_what_stands_before(
            records in proptest::collection::vec(record(), 1..50),
            cut in 0..1600usize,
        ) {
            let bytes = file(&records);
            let cut = cut.min(bytes.len());
            let trace = Trace::read(&bytes[..cut], &[0, 1, 2]).expect("memory reads");
            prop_assert_eq!(trace.notes.records, (cut / RECORD_LEN) as u64);
            prop_assert_eq!(trace.notes.rest, (cut % RECORD_LEN) as u64);
        }

        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let trace = Trace::read(&bytes[..], &[0]).expect("memory reads");
            prop_assert!(trace.notes.records <= (bytes.len() / RECORD_LEN) as u64);
        }
    }

    #[test]
    fn damage_ends_the_trace() {
        let good = Record { kind: kind::IRQ, start_ns: 5, ..Record::default() };
        let bad = Record { kind: kind::IRQ, start_ns: u64::MAX, ..good };
        let trace = Trace::read(&file(&[good, bad, good])[..], &[0]).expect("memory reads");
        assert_eq!(trace.cores[&0], [good]);
        assert_eq!(trace.notes.damaged_at, Some(40));
    }

    #[test]
    fn what_was_lost_is_counted_on_all_cores() {
        let lost = Record { kind: kind::LOST, cpu: 7, aux: 12, ..Record::default() };
        let trace = Trace::read(&file(&[lost, lost])[..], &[0]).expect("memory reads");
        assert_eq!(trace.notes.lost, BTreeMap::from([(7, 24)]));
        assert!(trace.cores[&0].is_empty());
    }
}
