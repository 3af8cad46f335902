//! What the stamps after the device say of cores and of queues.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::capture::{CaptureError, Unreadable};
use crate::marks::{self, Mark};
use crate::stamps::{self, Stamp};

/// How many records of the file are read at a time.
const CHUNK: usize = 1 << 14;

/// What was asked of the packets after the device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Egress {
    /// For each time asked for, the packets that left before it.
    pub positions: Vec<u64>,
    /// For each time asked for, the core of a packet that left then; none where nobody says.
    pub cpus: Vec<Option<u16>>,
}

impl Egress {
    /// Reads a file of stamps or marks. `times` ascend.
    pub fn read(path: &Path, times: &[u64]) -> Result<Self, CaptureError> {
        let mut stamps = Stamps::open(path)?;
        let mut found = Self::default();
        let mut packets = 0;
        // Whether any packet names a core but the first: stamp files without cores hold zeros.
        let mut told = stamps.format == Format::Marks;
        while stamps.refill()? {
            for bytes in stamps.records() {
                let (time, cpu) = stamps.format.decode(bytes);
                told |= cpu != Some(0);
                while let Some(&asked) = times.get(found.positions.len())
                    && asked <= time
                {
                    found.positions.push(packets);
                    found.cpus.push(cpu.filter(|_| asked == time));
                }
                packets += 1;
            }
        }
        found.positions.resize(times.len(), packets);
        found.cpus.resize(times.len(), None);
        if !told {
            found.cpus.fill(None);
        }
        Ok(found)
    }
}

/// The packets that left one core, in the order of time.
pub(super) struct Leaving {
    stamps: Stamps,
    /// The core; none for all of them.
    cpu: Option<u16>,
    /// The first that was not passed, among those that are in memory.
    place: usize,
}

impl Leaving {
    /// Reads a file of stamps or marks, from the packets on that left at a time. Its stamps ascend.
    pub(super) fn open(path: &Path, cpu: Option<u16>, from: u64) -> Result<Self, CaptureError> {
        let mut stamps = Stamps::open(path)?;
        stamps.seek(from)?;
        Ok(Self { stamps, cpu, place: 0 })
    }

    /// Whether one left within a stretch of time, the end inclusive, and none before it has that one.
    /// Stretches ascend.
    pub(super) fn any_within(&mut self, from: u64, until: u64) -> Result<bool, CaptureError> {
        let mut found = false;
        loop {
            for bytes in self.stamps.records().skip(self.place) {
                let (time, cpu) = self.stamps.format.decode(bytes);
                if self.cpu.is_none() || self.cpu == cpu {
                    if time > until {
                        return Ok(found);
                    }
                    found |= time >= from;
                }
                self.place += 1;
            }
            if !self.stamps.refill()? {
                self.place = self.stamps.records().len();
                return Ok(found);
            }
            self.place = 0;
        }
    }
}

/// Files whose records name cores.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Stamps,
    Marks,
}

impl Format {
    /// That of a file with this header.
    fn of(header: &[u8]) -> Option<Self> {
        let stamps = stamps::Header::decode(header).map(|_| Self::Stamps);
        stamps.or_else(|| marks::Header::decode(header).map(|_| Self::Marks))
    }

    fn header_len(self) -> usize {
        match self {
            Self::Stamps => stamps::HEADER_LEN,
            Self::Marks => marks::HEADER_LEN,
        }
    }

    fn record_len(self) -> usize {
        match self {
            Self::Stamps => stamps::RECORD_LEN,
            Self::Marks => marks::RECORD_LEN,
        }
    }

    /// The time and the core of a record.
    fn decode(self, bytes: &[u8]) -> (u64, Option<u16>) {
        match self {
            Self::Stamps => {
                let bytes: &[u8; stamps::RECORD_LEN] = bytes.try_into().expect("a record");
                (Stamp::decode(bytes).time_ns, Some(u16::from_le_bytes([bytes[14], bytes[15]])))
            }
            Self::Marks => {
                let mark = Mark::decode(bytes.try_into().expect("a record"));
                (mark.time_ns, mark.cpu)
            }
        }
    }
}

/// The records of a file, some at a time.
struct Stamps {
    path: PathBuf,
    format: Format,
    file: File,
    buffer: Vec<u8>,
    filled: usize,
}

impl Stamps {
    /// Reads the header.
    fn open(path: &Path) -> Result<Self, CaptureError> {
        let io = Unreadable::io(path);
        let mut file = File::open(path).map_err(io)?;
        let mut header = Vec::new();
        Read::by_ref(&mut file)
            .take(marks::HEADER_LEN as u64)
            .read_to_end(&mut header)
            .map_err(io)?;
        if header.len() < stamps::HEADER_LEN {
            return Err(Unreadable::HeaderCut.of(path));
        }
        let Some(format) = Format::of(&header) else {
            let magic = header[..8].iter().map(|byte| format!("{byte:02x}")).collect();
            return Err(Unreadable::UnknownFormat { magic }.of(path));
        };
        file.seek(SeekFrom::Start(format.header_len() as u64)).map_err(io)?;
        let buffer = vec![0; CHUNK * format.record_len()];
        Ok(Self { path: path.to_owned(), format, file, buffer, filled: 0 })
    }

    /// Goes to the first record at a time or behind it, by halves.
    fn seek(&mut self, time: u64) -> Result<(), CaptureError> {
        let io = Unreadable::io(&self.path);
        let length = self.file.metadata().map_err(io)?.len() as usize;
        let (header_len, record_len) = (self.format.header_len(), self.format.record_len());
        let (mut from, mut until) = (0, length.saturating_sub(header_len) / record_len);
        let at = |record: usize| (header_len + record * record_len) as u64;
        let mut bytes = vec![0; record_len];
        while from < until {
            let middle = usize::midpoint(from, until);
            self.file.read_exact_at(&mut bytes, at(middle)).map_err(io)?;
            if self.format.decode(&bytes).0 < time {
                from = middle + 1;
            } else {
                until = middle;
            }
        }
        self.file.seek(SeekFrom::Start(at(from))).map_err(io)?;
        Ok(())
    }

    /// Those in memory.
    fn records(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.buffer[..self.filled].chunks_exact(self.format.record_len())
    }

    /// Forgets those in memory and reads the next ones; `false` at the end.
    fn refill(&mut self) -> Result<bool, CaptureError> {
        let record_len = self.format.record_len();
        let rest = self.filled % record_len;
        self.buffer.copy_within(self.filled - rest..self.filled, 0);
        self.filled = rest;
        while self.filled < record_len {
            match self.file.read(&mut self.buffer[self.filled..]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Unreadable::Io(error).of(&self.path)),
                Ok(0) => return Ok(false),
                Ok(more) => self.filled += more,
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_packet_that_leaves_at_the_end_left_within() {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        let header =
            stamps::Header { clock: stamps::Clock::Monotonic, counts: None, link: "egress".into() };
        file.write_all(&header.encode()).expect("room");
        for time in [10u64, 20] {
            file.write_all(&[time.to_le_bytes(), [0; 8]].concat()).expect("room");
        }
        let mut leaving = Leaving::open(file.path(), None, 0).expect("stamps");
        let within = [(5, 10), (11, 19), (20, 30)]
            .map(|(from, until)| leaving.any_within(from, until).expect("stamps"));
        assert_eq!(within, [true, false, true]);
    }
}
