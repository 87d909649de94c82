//! The kernels of [`ferroket_kernels`] as FFI handlers that XLA calls: one module for each thing that is computed.
//!
//! A handler reads its arguments one after the other ([`ferroket_xla_ffi::Arguments`]), each table with what belongs to
//! it: [`operators`] read the tables of a form, [`amplitudes`] those of an amplitude. Then it deals the samples out to the
//! threads of XLA's pool ([`blocks`]). Python gives the arguments in the same order, in `python/ferroket/ffi`.

use ferroket_xla_ffi::raw::Handler;

mod amplitudes;
mod blocks;
mod chains;
mod compact;
mod configurations;
mod count;
mod determinants;
mod distinct;
mod dtypes;
mod errors;
mod first_layer;
mod ising;
mod linear_algebra;
mod local_values;
mod marker;
mod network;
mod operators;
mod padded;
mod pair_sums;
mod products;
mod proposals;
mod rules;
mod shared_systems;
#[cfg(test)]
mod testing;

/// The handlers by the names under which they are registered.
pub const HANDLERS: [(&str, Handler); 34] = [
    ("ferroket_chains_jastrow", chains::jastrow),
    ("ferroket_chains_pfaffian", chains::pfaffian),
    ("ferroket_chains_rbm", chains::rbm),
    ("ferroket_chains_product", chains::product),
    ("ferroket_chains_slater", chains::slater),
    ("ferroket_chains_network", proposals::proposals),
    ("ferroket_determinant_ratios", determinants::ratios),
    ("ferroket_determinants", determinants::logarithms),
    ("ferroket_distinct_rows", distinct::distinct_rows),
    ("ferroket_first_layer", first_layer::sums),
    ("ferroket_network", network::values),
    ("ferroket_ising", ising::connected_elements),
    ("ferroket_gram", linear_algebra::gram),
    ("ferroket_pair_sums", pair_sums::logarithms),
    ("ferroket_shared_factor", shared_systems::factor_panel),
    ("ferroket_shared_rows", shared_systems::rows),
    ("ferroket_shared_solution", shared_systems::solution),
    ("ferroket_shared_solve", shared_systems::solve_panel),
    ("ferroket_shared_start", shared_systems::start),
    ("ferroket_shared_start_of_gram", shared_systems::start_of_gram),
    ("ferroket_shared_update", shared_systems::update_panel),
    ("ferroket_solve_gram", linear_algebra::solve_gram),
    ("ferroket_solve_positive", linear_algebra::solve_positive),
    ("ferroket_terms", padded::terms),
    ("ferroket_terms_compact", compact::terms),
    ("ferroket_terms_count", count::terms),
    ("ferroket_terms_jastrow", local_values::jastrow),
    ("ferroket_terms_pfaffian", local_values::pfaffian),
    ("ferroket_terms_rbm", local_values::rbm),
    ("ferroket_terms_product", local_values::product),
    ("ferroket_terms_slater", local_values::slater),
    ("ferroket_matrices", padded::matrices),
    ("ferroket_matrices_compact", compact::matrices),
    ("ferroket_matrices_count", count::matrices),
];

pub use network::profile as profile_network;

/// What keeps the marker of a program that many ranks run.
pub const MARKER: Handler = marker::marker;

#[cfg(test)]
mod tests {
    use super::*;
    use ferroket_xla_ffi::testing::{TestFrame, Threads};

    #[test]
    fn every_handler_names_the_argument_that_is_missing() {
        for (name, handler) in HANDLERS {
            let frame = TestFrame::new(Threads::None).attr_bool("states", true).attr_bool("diagonal_only", false);
            let frame = frame
                .attr_bool("off_diagonal_only", false)
                .attr_bool("pairs", false)
                .attr_bool("diagonal", true)
                .attr_bool("rows", true)
                .attr_bool("program", false);
            let failure = { frame }.execute(handler).expect_err("there are no arguments");
            let first = match name {
                "ferroket_chains_network" => "proposed_log_probs",
                "ferroket_determinants" | "ferroket_pair_sums" => "n",
                "ferroket_gram" => "device",
                "ferroket_solve_gram" => "right",
                "ferroket_network" => "inputs",
                "ferroket_solve_positive" => "matrix",
                "ferroket_shared_rows" => "step",
                name if name.contains("shared") => "device",
                name if name.contains("chains") => "start",
                _ => "x",
            };
            assert_eq!(failure.message, format!("argument 0 '{first}' is missing: the call has 0"), "{name}");
            assert_eq!(HANDLERS.iter().filter(|(other, _)| *other == name).count(), 1);
        }
    }
}
