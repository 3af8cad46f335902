//! Which packets of which files make a side, as Python says it.

use std::path::PathBuf;

use pyo3::prelude::*;
use tailtap_analysis::capture::Format;
use tailtap_analysis::evaluate::EvaluateError;
use tailtap_analysis::source::{Filter, Instruction, Select, Source, Ways};

/// A path, or a `tailtap.analysis.evaluation.sources.Source`.
#[derive(FromPyObject)]
pub enum Given {
    Path(PathBuf),
    Source(Fields),
}

/// The attributes of a source.
#[derive(FromPyObject)]
pub struct Fields {
    name: PathBuf,
    files: Vec<PathBuf>,
    select: Option<String>,
    filter: Option<(String, Vec<Instruction>)>,
    way: Option<(Vec<u8>, bool)>,
}

impl Given {
    /// The packets that are meant.
    pub fn source(self, format: Option<Format>) -> Result<Source, EvaluateError> {
        let fields = match self {
            Self::Path(path) => return Ok(Source::from(&path)),
            Self::Source(fields) => fields,
        };
        let mut source = Source::of_files(&fields.name, &fields.files, format)?;
        if let Some((text, program)) = fields.filter {
            source = source.filtered(Filter { text, program });
        }
        if let Some(text) = fields.select {
            let select: Select = text.parse()?;
            source = source.selecting(select)?;
        }
        if let Some((bytes, back)) = fields.way {
            source = source.going(Ways::from_bytes(&bytes).unwrap_or_default(), back);
        }
        Ok(source)
    }
}
