//! What the stamps after the device say of cores and of queues, in one pass over the file.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use crate::capture::CaptureError;
use crate::stamps::{HEADER_LEN, Header, RECORD_LEN};
use crate::trace::{Record, Trace, kind};

/// How much of the file is read at a time.
const CHUNK: usize = RECORD_LEN << 14;
/// A flag of records in memory: a softirq of the serving kind during which no packet left.
pub(super) const FOREIGN_FLAG: u8 = 0x80;

/// What was asked of the packets after the device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Egress {
    /// For each time asked for, the packets that left before it.
    pub positions: Vec<u64>,
    /// For each time asked for, the core of a packet that left then; none where nobody says.
    pub cpus: Vec<Option<u16>>,
}

impl Egress {
    /// Reads a stamp file. `times` ascend. The softirqs of the vector `serving` in `trace` during
    /// which no packet left its core become those of others.
    pub fn read(
        path: &Path,
        times: &[u64],
        trace: &mut Trace,
        serving: Option<u32>,
    ) -> Result<Self, CaptureError> {
        let io = |source| CaptureError::Io { path: path.to_owned(), source };
        let mut file = File::open(path).map_err(io)?;
        let mut header = [0; HEADER_LEN];
        match file.read_exact(&mut header) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                return Err(CaptureError::HeaderCut(path.to_owned()));
            }
            read => read.map_err(io)?,
        }
        if Header::decode(&header).is_none() {
            let magic = header[..8].iter().map(|byte| format!("{byte:02x}")).collect();
            return Err(CaptureError::UnknownFormat { path: path.to_owned(), magic });
        }
        let mut survey = Survey::new(times);
        let mut serves: Vec<Serves<'_>> = trace
            .cores
            .iter_mut()
            .filter_map(|(&cpu, records)| serving.map(|vector| Serves::new(cpu, records, vector)))
            .collect();
        let only = serves.len() == 1;
        let mut buffer = vec![0; CHUNK];
        let mut filled = 0;
        loop {
            let more = match file.read(&mut buffer[filled..]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                more => more.map_err(io)?,
            };
            filled += more;
            let (records, rest) = buffer[..filled].as_chunks::<RECORD_LEN>();
            let rest = rest.len();
            for bytes in records {
                let time = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
                let cpu = u16::from_le_bytes([bytes[14], bytes[15]]);
                survey.take(time, cpu);
                for core in serves.iter_mut().filter(|core| only || core.cpu == cpu) {
                    core.take(time);
                }
            }
            if more == 0 {
                return Ok(survey.finish());
            }
            buffer.copy_within(filled - rest..filled, 0);
            filled = rest;
        }
    }
}

/// Answers questions about times that ascend.
struct Survey<'a> {
    times: &'a [u64],
    found: Egress,
    packets: u64,
    /// Whether any packet names a core but the first: files without cores hold zeros.
    told: bool,
}

impl<'a> Survey<'a> {
    fn new(times: &'a [u64]) -> Self {
        Self { times, found: Egress::default(), packets: 0, told: false }
    }

    fn take(&mut self, time: u64, cpu: u16) {
        self.told |= cpu != 0;
        while let Some(&asked) = self.times.get(self.found.positions.len())
            && asked <= time
        {
            self.found.positions.push(self.packets);
            self.found.cpus.push((asked == time).then_some(cpu));
        }
        self.packets += 1;
    }

    fn finish(mut self) -> Egress {
        self.found.positions.resize(self.times.len(), self.packets);
        self.found.cpus.resize(self.times.len(), None);
        if !self.told {
            self.found.cpus.fill(None);
        }
        self.found
    }
}

/// Finds out in which softirqs of one core packets of the run left.
struct Serves<'a> {
    cpu: u16,
    /// The softirqs that may serve, in the order of time.
    softirqs: Vec<&'a mut Record>,
    /// The first that may still see a packet.
    next: usize,
}

impl<'a> Serves<'a> {
    /// All are those of others until a packet leaves. Short ones that were gathered into one record are not looked at.
    fn new(cpu: u16, records: &'a mut [Record], vector: u32) -> Self {
        let serving = |record: &&mut Record| {
            record.kind == kind::SOFTIRQ && record.id == vector && record.accumulated().is_none()
        };
        let mut softirqs: Vec<_> = records.iter_mut().filter(serving).collect();
        softirqs.sort_by_key(|record| record.start_ns);
        for record in &mut softirqs {
            record.flags |= FOREIGN_FLAG;
        }
        Self { cpu, softirqs, next: 0 }
    }

    fn take(&mut self, time: u64) {
        while self.softirqs.get(self.next).is_some_and(|record| record.end_ns() < time) {
            self.next += 1;
        }
        if let Some(record) = self.softirqs.get_mut(self.next)
            && record.start_ns <= time
        {
            record.flags &= !FOREIGN_FLAG;
        }
    }
}
