//! The tracer, for Python.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use tailtap_analysis::trace::kind;
use tailtap_datapath::trace::{Mode, Options, Report, TraceError, lacking, trace as run};

use crate::datapath::{on_own_thread, parse, raised, ready, refused};
use crate::errors::not_written;
use crate::records::plain;

/// Adds this file's functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(trace, module)?)?;
    module.add_function(wrap_pyfunction!(trace_lacks, module)?)?;
    let kinds = PyDict::new(module.py());
    for (number, name) in kind::ALL {
        kinds.set_item(name, number)?;
    }
    module.add("TRACE_KINDS", kinds)?;
    Ok(())
}

#[pyfunction]
#[pyo3(signature = (path, cpus, on_ready, *, senders=Vec::new(), mode, floor_ns, served, networks=Vec::new(), steered=false, records=None, rotate_ns=None, on_file=None, flush_ns=None, duration_ns=None, cpu=None, budget=None, measure_cost=false))]
#[expect(clippy::too_many_arguments, reason = "the parameters of the Python function")]
fn trace<'py>(
    py: Python<'py>,
    path: PathBuf,
    cpus: Vec<usize>,
    on_ready: Py<PyAny>,
    senders: Vec<usize>,
    mode: &str,
    floor_ns: u32,
    served: Vec<u32>,
    networks: Vec<u32>,
    steered: bool,
    records: Option<u64>,
    rotate_ns: Option<u64>,
    on_file: Option<Py<PyAny>>,
    flush_ns: Option<u64>,
    duration_ns: Option<u64>,
    cpu: Option<usize>,
    budget: Option<f64>,
    measure_cost: bool,
) -> PyResult<(PathBuf, Bound<'py, PyAny>)> {
    let mode: Mode = parse(mode)?;
    let options = Options {
        path,
        cpus,
        senders,
        mode,
        floor_ns,
        served,
        networks,
        steered,
        records,
        rotate_ns,
        flush_ns,
        duration_ns,
        cpu,
        budget,
        measure_cost,
    };
    let mut tell = |report: Report| match &on_file {
        None => Ok(()),
        Some(function) => {
            Python::attach(|py| function.call1(py, told(py, report)?).map(drop)).map_err(Into::into)
        }
    };
    let traced = on_own_thread(py, "tt-trace", || run(&options, ready(on_ready), &mut tell))?;
    let report = traced.map_err(|error| {
        let input = match &error {
            TraceError::Ready(error) => return raised(py, error.as_ref()),
            TraceError::Write { path, source } => return not_written(path, source, ""),
            TraceError::Records { .. } | TraceError::Cpus { .. } | TraceError::Cpu(_) => true,
            _ => false,
        };
        refused(input, &error)
    })?;
    told(py, report)
}

/// A file and what is in it.
fn told(py: Python<'_>, report: Report) -> PyResult<(PathBuf, Bound<'_, PyAny>)> {
    let facts = plain(py, &report)?;
    Ok((report.path, facts))
}

/// What a trace would lack on this kernel, and what would stand in for it.
#[pyfunction]
fn trace_lacks(mode: &str) -> PyResult<(Vec<String>, Vec<String>)> {
    lacking(parse(mode)?).map_err(|error| refused(false, &error))
}
