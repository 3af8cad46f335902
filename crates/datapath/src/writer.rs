//! Writes a stamp file: records in time order, counts into the header at the end.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;

use tailtap_analysis::stamps::{Clock, HEADER_LEN, Header, RECORD_LEN, TapCounts};

use crate::ring::Record;

/// Records kept back for sorting. Stamps of one CPU come in order; those of two CPUs can cross by
/// as long as an interrupt takes between stamp and ring.
const WINDOW: usize = 8192;

/// A stamp file that is being written. Killed at any time, it leaves a readable file.
#[derive(Debug)]
pub struct StampWriter {
    file: File,
    header: Header,
    pending: Vec<Record>,
    bytes: Vec<u8>,
    written: u64,
}

impl StampWriter {
    /// Creates the file, or empties it.
    pub fn create(path: &Path, link: &str) -> io::Result<Self> {
        let header = Header { clock: Clock::Monotonic, counts: None, link: link.into() };
        let mut file = File::create(path)?;
        file.write_all(&header.encode())?;
        Ok(Self { file, header, pending: Vec::new(), bytes: Vec::new(), written: 0 })
    }

    /// Where new records go; [`StampWriter::flush`] takes them from here.
    pub fn pending(&mut self) -> &mut Vec<Record> {
        &mut self.pending
    }

    /// Writes pending records but for the latest few, which later ones might precede.
    pub fn flush(&mut self) -> io::Result<()> {
        let ready = self.pending.len().saturating_sub(WINDOW);
        self.write(ready)
    }

    /// Writes everything that is pending and returns the number of records in the file.
    pub fn flush_all(&mut self) -> io::Result<u64> {
        self.write(self.pending.len())?;
        Ok(self.written)
    }

    /// Puts the counts into the header. The file is complete.
    pub fn finish(mut self, counts: TapCounts) -> io::Result<()> {
        self.header.counts = Some(counts);
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(&self.header.encode())
    }

    fn write(&mut self, count: usize) -> io::Result<()> {
        if count == 0 {
            return Ok(());
        }
        let by_time = |record: &Record| record[0];
        if !self.pending.is_sorted_by_key(by_time) {
            self.pending.sort_by_key(by_time);
        }
        self.bytes.clear();
        for record in self.pending.drain(..count) {
            self.bytes.extend_from_slice(&record[0].to_le_bytes());
            self.bytes.extend_from_slice(&record[1].to_le_bytes());
        }
        if let Err(error) = self.file.write_all(&self.bytes) {
            // What found room stays, but for a record that did not find room as a whole.
            if let Ok(metadata) = self.file.metadata() {
                let rest = (metadata.len() - HEADER_LEN as u64) % RECORD_LEN as u64;
                let _ = self.file.set_len(metadata.len() - rest);
            }
            return Err(error);
        }
        self.written += count as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailtap_analysis::stamps::Stamp;

    fn read(path: &Path) -> (Header, Vec<Stamp>) {
        let bytes = std::fs::read(path).expect("readable");
        let records = bytes[HEADER_LEN..].chunks_exact(RECORD_LEN);
        assert!(records.remainder().is_empty());
        let stamps = records.map(|r| Stamp::decode(r.try_into().expect("sixteen bytes")));
        (Header::decode(&bytes).expect("a header"), stamps.collect::<Vec<_>>())
    }

    #[test]
    fn records_come_out_in_time_order_across_flushes() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.stamps");
        let mut writer = StampWriter::create(&path, "ingress").expect("created");
        let total = 3 * WINDOW as u64;
        for id in 0..total {
            // Neighbours swapped.
            writer.pending().push([1000 + (id ^ 1), (60 << 32) | (id ^ 1)]);
            if id % 1001 == 0 {
                writer.flush().expect("written");
            }
        }
        assert_eq!(read(&path).0.counts, None);
        assert!(!read(&path).1.is_empty());
        assert_eq!(writer.flush_all().expect("written"), total);
        let counts = TapCounts { seen: total, stored: total, lost: 0, other: 5 };
        writer.finish(counts).expect("finished");
        let (header, stamps) = read(&path);
        assert_eq!(header.counts, Some(counts));
        assert_eq!(header.link, "ingress");
        let expected =
            (0..total).map(|id| Stamp { time_ns: 1000 + id, id: id as u32, frame_len: 60 });
        assert!(stamps.into_iter().eq(expected));
    }

    #[test]
    fn a_full_disk_is_an_error() {
        assert!(StampWriter::create(Path::new("/dev/full"), "x").is_err());
    }
}
