//! Writes a trace: the records of each core in the order of their ends.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tailtap_analysis::trace::MAGIC;

use super::record::{Kind, Record};
use crate::file;

/// Records that ended this much earlier than the newest of their core are written. A program that is
/// interrupted between reading the clock and taking a slot stores its record behind later ones.
pub(super) const HOLD_NS: u64 = 100_000_000;

/// What the records name by a number.
#[derive(Clone, Debug, Default)]
pub(super) struct Named {
    pub(super) pids: BTreeSet<u32>,
    pub(super) irqs: BTreeSet<u32>,
    pub(super) functions: BTreeSet<u64>,
}

impl Named {
    fn note(&mut self, record: Record) {
        let aux = record.aux();
        match record.kind() {
            Kind::IRQ => drop(self.irqs.insert(record.id())),
            Kind::TASK | Kind::RUNNABLE | Kind::PAGE_FAULT | Kind::MIGRATE => {
                self.pids.insert(record.id());
            }
            Kind::WAKEUP => self.pids.extend([record.id(), aux as u32]),
            Kind::WORK => {
                self.pids.insert(record.id());
                self.functions.insert(aux);
            }
            Kind::IPI_FUNCTION | Kind::IPI_DELAY => {
                self.functions.insert(aux);
                self.pids.extend(record.sender());
            }
            Kind::SOFTIRQ => match record.raiser() {
                Some((Kind::IRQ, irq)) => drop(self.irqs.insert(irq)),
                Some((Kind::TASK, pid)) if pid != 0 => drop(self.pids.insert(pid)),
                _ => {}
            },
            Kind::HRTIMER | Kind::NMI => drop(self.functions.insert(aux)),
            _ => {}
        }
    }
}

/// A trace that is being written. Killed at any time, it leaves a readable file.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) path: PathBuf,
    file: File,
    /// By core.
    pending: Vec<Vec<Record>>,
    bytes: Vec<u8>,
    pub(super) named: Named,
    pub(super) counts: BTreeMap<Kind, u64>,
}

impl Writer {
    /// Creates the file for so many cores, or empties it.
    pub(super) fn create(path: &Path, cores: usize) -> io::Result<Self> {
        let file = begun(path)?;
        let pending = vec![Vec::new(); cores];
        let (named, counts) = Default::default();
        Ok(Self { path: path.into(), file, pending, bytes: Vec::new(), named, counts })
    }

    /// Goes on in another file. What has not been written comes into that one.
    pub(super) fn go_on(&mut self, path: &Path) -> io::Result<()> {
        self.file = begun(path)?;
        self.path = path.into();
        (self.named, self.counts) = Default::default();
        Ok(())
    }

    /// Takes a record of a core. Nothing is written before [`Writer::flush`].
    #[inline]
    pub(super) fn push(&mut self, core: usize, record: Record) {
        self.pending[core].push(record);
    }

    /// Writes what ended [`HOLD_NS`] before `until`.
    pub(super) fn flush(&mut self, until: u64) -> io::Result<()> {
        self.write(until.saturating_sub(HOLD_NS))
    }

    /// Writes everything.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        self.write(u64::MAX)
    }

    fn write(&mut self, until: u64) -> io::Result<()> {
        for records in &mut self.pending {
            if !records.is_sorted_by_key(|record| record.end()) {
                records.sort_by_key(|record| record.end());
            }
            let ready = records.partition_point(|record| record.end() < until);
            for record in records.drain(..ready) {
                self.named.note(record);
                *self.counts.entry(record.kind()).or_default() += 1;
                record.write_to(&mut self.bytes);
            }
        }
        let written = self.file.write_all(&self.bytes);
        self.bytes.clear();
        written
    }
}

fn begun(path: &Path) -> io::Result<File> {
    let mut file = file::create(path)?;
    file.write_all(&MAGIC)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(start: u64, dur: u64, pid: u32) -> Record {
        Record::new(start, dur, Kind::TASK, 1, 0, pid)
    }

    #[test]
    fn records_are_written_by_their_end_and_young_ones_wait() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("trace.events");
        let mut writer = Writer::create(&path, 2).expect("created");
        let late = 2 * HOLD_NS;
        for record in [task(10, 50, 1), task(20, 10, 2), task(late, 5, 3)] {
            writer.push(0, record);
        }
        writer.push(1, task(5, 5, 4));
        let pids = || -> Vec<u8> {
            let bytes = std::fs::read(&path).expect("read");
            assert_eq!(&bytes[..8], b"TTTRACE1");
            bytes[8..].chunks(32).map(|record| record[24]).collect()
        };
        writer.flush(late).expect("written");
        assert_eq!(pids(), [2, 1, 4]);
        writer.finish().expect("written");
        assert_eq!((pids(), writer.counts[&Kind::TASK]), (vec![2, 1, 4, 3], 4));
        assert_eq!(writer.named.pids, [1, 2, 3, 4].into());
    }

    #[test]
    fn what_is_young_comes_into_the_next_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let [first, second] = ["a", "b"].map(|name| folder.path().join(name));
        let mut writer = Writer::create(&first, 1).expect("created");
        writer.push(0, task(10, 10, 1));
        writer.push(0, task(2 * HOLD_NS, 5, 2));
        writer.flush(2 * HOLD_NS).expect("written");
        assert_eq!(writer.named.pids, [1].into());
        writer.go_on(&second).expect("created");
        assert!(writer.counts.is_empty() && writer.named.pids.is_empty());
        writer.finish().expect("written");
        let sizes = [first, second].map(|path| std::fs::metadata(path).expect("there").len());
        assert_eq!((sizes, writer.named.pids), ([8 + 32; 2], [2].into()));
    }
}
