//! The tracer, for Python.

use std::collections::BTreeMap;
use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use tailtap_analysis::trace::kind;
use tailtap_datapath::trace::{Mode, Options, Report, TraceError, lacking, trace as run};

use crate::datapath::{on_own_thread, parse, raised, ready, refused};
use crate::errors::not_written;

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
) -> PyResult<Bound<'py, PyDict>> {
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
            Python::attach(|py| function.call1(py, (to_dict(py, report)?,)).map(drop))
                .map_err(Into::into)
        }
    };
    let traced = on_own_thread(py, || run(&options, ready(on_ready), &mut tell))?;
    let report = traced.map_err(|error| {
        let input = match &error {
            TraceError::Ready(error) => return raised(py, error.as_ref()),
            TraceError::Write { path, source } => return not_written(path, source, ""),
            TraceError::Records { .. } | TraceError::Cpus { .. } | TraceError::Cpu(_) => true,
            _ => false,
        };
        refused(input, &error)
    })?;
    to_dict(py, report)
}

fn to_dict(py: Python<'_>, report: Report) -> PyResult<Bound<'_, PyDict>> {
    let kinds: BTreeMap<&str, u64> =
        report.records.iter().map(|(kind, &count)| (kind.name(), count)).collect();
    let result = PyDict::new(py);
    result.set_item("path", report.path)?;
    result.set_item("started_ns", report.span_ns.0)?;
    result.set_item("ended_ns", report.span_ns.1)?;
    result.set_item("kinds", kinds)?;
    result.set_item("paused_ns", report.paused_ns)?;
    result.set_item("share", report.share)?;
    result.set_item("writes", report.writes)?;
    result.set_item("passes", report.passes)?;
    result.set_item("lost", report.lost)?;
    result.set_item("missing", report.missing)?;
    result.set_item("substitutes", report.substitutes)?;
    result.set_item("steal", report.steal)?;
    result.set_item("pids", report.names.pids)?;
    result.set_item("irqs", report.names.irqs)?;
    result.set_item("functions", report.names.functions)?;
    result.set_item("kernel", report.kernel)?;
    result.set_item("boot_id", report.boot_id)?;
    let costs =
        report.costs.into_iter().map(|cost| (cost.hook, (cost.runs, cost.ns, cost.skipped)));
    result.set_item("hooks", costs.collect::<BTreeMap<_, _>>())?;
    Ok(result)
}

/// What a trace would lack on this kernel, and what would stand in for it.
#[pyfunction]
fn trace_lacks(mode: &str) -> PyResult<(Vec<String>, Vec<String>)> {
    lacking(parse(mode)?).map_err(|error| refused(false, &error))
}
