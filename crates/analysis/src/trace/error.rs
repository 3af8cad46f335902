//! Why a trace cannot be read at all.

use std::path::{Path, PathBuf};

/// A trace cannot be read at all.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {why}")]
pub struct TraceError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub why: Unreadable,
}

/// What is wrong with a trace.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// The operating system refused.
    #[error(transparent)]
    Io(std::io::Error),
    /// The first bytes are those of something else, or there are none.
    #[error("this is no trace: give a run that was measured with `trace: thin` or `full`")]
    NotATrace,
}

impl Unreadable {
    /// This, of a file.
    pub(super) fn of(self, path: &Path) -> TraceError {
        TraceError { path: path.to_owned(), why: self }
    }
}
