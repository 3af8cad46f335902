//! The Python module `tailtap._core`: converts values, releases the GIL, maps errors. No logic.

mod cause;
mod datapath;
mod errors;
mod evaluation;
mod hardware;
mod records;
mod source;
mod trace;
mod transactions;

use pyo3::prelude::*;

#[pymodule]
#[pyo3(name = "_core")]
fn tailtap_core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(evaluation::evaluate, module)?)?;
    module.add_function(wrap_pyfunction!(evaluation::plan, module)?)?;
    module.add_function(wrap_pyfunction!(evaluation::evaluate_piece, module)?)?;
    module.add_function(wrap_pyfunction!(evaluation::evaluate_within, module)?)?;
    module.add_function(wrap_pyfunction!(evaluation::merge, module)?)?;
    module.add_function(wrap_pyfunction!(evaluation::conclude, module)?)?;
    module.add_function(wrap_pyfunction!(evaluation::crossings, module)?)?;
    module.add_function(wrap_pyfunction!(evaluation::both_ways, module)?)?;
    module.add_function(wrap_pyfunction!(evaluation::sides, module)?)?;
    module.add_function(wrap_pyfunction!(evaluation::percentiles, module)?)?;
    module.add_function(wrap_pyfunction!(transactions::transactions, module)?)?;
    module.add_function(wrap_pyfunction!(transactions::has_transactions, module)?)?;
    cause::register(module)?;
    datapath::register(module)?;
    hardware::register(module)?;
    trace::register(module)?;
    Ok(())
}
