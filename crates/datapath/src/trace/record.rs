//! Records of a trace, as docs/files.md describes them.

/// What a trace begins with.
pub(super) const MAGIC: [u8; 8] = *b"TTTRACE1";
/// Words of a record, in the ring as in the file.
pub(super) const RECORD_WORDS: usize = 4;

const ADDED_UP: u64 = 1;
/// Where the thread begins in the word that tells a sender, behind its CPU.
const SENDER_THREAD: u32 = 10;

/// What happened: `enum kind` in bpf/trace.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind(pub(super) u8);

impl Kind {
    pub(super) const IRQ: Self = Self(1);
    pub(super) const VECTOR: Self = Self(2);
    pub(super) const FUNCTION: Self = Self(3);
    pub(super) const DELAY: Self = Self(4);
    pub(super) const SOFTIRQ: Self = Self(5);
    pub(super) const TASK: Self = Self(6);
    pub(super) const WAKEUP: Self = Self(7);
    pub(super) const WORK: Self = Self(8);
    pub(super) const NMI: Self = Self(10);
    pub(super) const HRTIMER: Self = Self(11);
    pub(super) const PAGE_FAULT: Self = Self(13);
    pub(super) const MIGRATE: Self = Self(18);
    pub(super) const RUNNABLE: Self = Self(19);
    pub(super) const LOST: Self = Self(254);

    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self.0 {
            1 => "irq",
            2 => "vector",
            3 => "ipi-function",
            4 => "ipi-delay",
            5 => "softirq",
            6 => "task",
            7 => "wakeup",
            8 => "work",
            9 => "idle",
            10 => "nmi",
            11 => "hrtimer",
            12 => "tlb-flush",
            13 => "page-fault",
            14 => "reclaim",
            15 => "compaction",
            16 => "frequency",
            17 => "kvm-exit",
            18 => "migrate",
            19 => "runnable",
            20 => "foreign-rx",
            254 => "lost",
            _ => "unknown",
        }
    }
}

/// A record: its words are those of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record(pub(super) [u64; RECORD_WORDS]);

impl Record {
    /// An interval of `dur` ns, in which nothing was stolen.
    pub(super) fn new(start: u64, dur: u64, kind: Kind, cpu: u16, aux: u64, id: u32) -> Self {
        let what = dur.min(u32::MAX.into()) | u64::from(kind.0) << 32 | u64::from(cpu) << 48;
        Self([start, what, aux, id.into()])
    }

    /// The same, as the sum of several.
    pub(super) fn added_up(self) -> Self {
        let Self([start, what, aux, more]) = self;
        Self([start, what | ADDED_UP << 40, aux, more])
    }

    pub(super) fn end(self) -> u64 {
        self.0[0].saturating_add(self.0[1] & 0xffff_ffff)
    }

    pub(super) fn kind(self) -> Kind {
        Kind((self.0[1] >> 32) as u8)
    }

    pub(super) fn aux(self) -> u64 {
        self.0[2]
    }

    pub(super) fn id(self) -> u32 {
        self.0[3] as u32
    }

    /// The thread that sent what this is about, if it is known: `sender()` in
    /// bpf/trace_interrupts.h.
    pub(super) fn sender(self) -> Option<u32> {
        let thread = self.id() >> SENDER_THREAD;
        (thread != 0 && self.id() != u32::MAX).then_some(thread)
    }

    pub(super) fn write_to(self, bytes: &mut Vec<u8>) {
        self.0.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_is_known_where_a_thread_had_its_core() {
        let sender = |id| Record::new(5, 5, Kind::FUNCTION, 1, 0, id).sender();
        assert_eq!(sender(1023 | 77 << SENDER_THREAD), Some(77));
        assert_eq!((sender(3), sender(u32::MAX)), (None, None));
    }
}
