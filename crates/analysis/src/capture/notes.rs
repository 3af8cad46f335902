//! What is found out about a capture besides its packets.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::stamps::{Clock, TapCounts};

/// Why nothing can be made of a capture from some place on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Damage {
    /// Position in the (decompressed) file.
    pub byte: u64,
    /// What is wrong there.
    pub why: String,
}

/// A record's place in a file that is not compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Where the record begins.
    pub offset: u64,
    /// Its time in nanoseconds.
    pub time_ns: u64,
}

/// What was found out about a capture while reading it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notes {
    /// Packets read.
    pub packets: u64,
    /// Why reading stopped before the end of the file.
    pub damage: Option<Damage>,
    /// How often mscap's time jumped back by 2^32 ns and was unwrapped.
    pub unwrapped: u64,
    /// The tap's own counts, from a stamp file that was closed.
    pub tap: Option<TapCounts>,
    /// A stamp file that was not closed: the tap still runs, or was killed.
    pub unclosed: bool,
    /// The clock of the stamps, where the file says it.
    pub clock: Option<Clock>,
    /// Size of the file in bytes when it was opened, compressed or not.
    pub size: u64,
    /// Its size later, if another program changed it in between: a capture that still runs.
    pub resized: Option<u64>,
}

impl Notes {
    /// Looks whether the file's size has changed since it was opened.
    pub(crate) fn look_again(&mut self, path: &Path) {
        let now = std::fs::metadata(path).map_or(self.size, |metadata| metadata.len());
        self.resized = (now != self.size).then_some(now);
    }
}
