"""Every private name of NetKet that Ferroket uses or replaces, where no public one does the same.

Checked on NetKet 3.20.5 and 3.23.0.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import update_wrapper
from types import FunctionType, ModuleType
from typing import Any

import netket as nk
import plum
from netket._src.driver import vmc_sr as _vmc_sr
from netket.operator import DiscreteJaxOperator
from netket.optimizer.qgt import qgt_onthefly
from netket.sampler.rules.hamiltonian import HamiltonianRuleBase
from netket.utils.timing import timed
from netket.vqs import MCState

from ferroket._compat.names import Private

TESTED = ("3.20.5", "3.23.0")
"""The lowest and the newest version of NetKet with which the tests run."""


class MissingNameError(RuntimeError):
    """This version of NetKet lacks something that Ferroket uses or replaces."""

    def __init__(self, name: str, use: str) -> None:
        super().__init__(
            f"NetKet {nk.__version__} has no {name}, {use}: install NetKet {TESTED[0]} to {TESTED[1]}, with which this "
            "Ferroket was tested, or a newer Ferroket"
        )


_LOG_PSI = "the network as NetKet gives it to the kernels of local energies and to samplers"
_IN_PLACE = "to notice that an operator was changed in place: whether its tables are to be computed anew, and that"

_DEFINITION = "our operators are instances of NetKet's, whose methods read and write it"
_CALLED = "our classes override it, since NetKet's other methods call it"

_SAMPLING = {
    "_sample_chain": ("self", "machine", "parameters", "state", "chain_length", "return_log_probabilities"),
    "_sample_next": ("self", "machine", "parameters", "state"),
}
"""The methods of NetKet's sampler that give the samples, and their parameters."""

_ORDER = (
    (Private("netket.operator:FermionOperator2ndJax._order", _DEFINITION, inherited=True),)
    if hasattr(nk.operator.FermionOperator2nd, "order")
    else ()
)
"""NetKet 3.20 notes no order of ladder operators."""

_EMA = "_mcmc_convergence_diagnostics_ema_decay"
_DIAGNOSTICS = (
    (Private(f"netket._src.driver.vmc_sr:VMC_SR.{_EMA}", "weighted samples have none", inherited=True),)
    if hasattr(nk.driver.VMC_SR, _EMA)
    else ()
)
"""NetKet 3.20 has no diagnostics over several steps."""

PRIVATE = (
    Private("netket.vqs:MCState._model", _LOG_PSI),
    Private("netket.vqs:MCState._apply_fun", _LOG_PSI),
    Private("netket.vqs:MCState._sampler_model", _LOG_PSI),
    Private("netket.vqs:MCState._sampler_variables", _LOG_PSI),
    Private("netket.vqs:MCState._sampler", "to draw samples from another distribution with the same chains"),
    Private("netket.sampler.rules.hamiltonian:HamiltonianRuleBase", "nk.sampler.rules.HamiltonianRule is a function"),
    *(
        Private(f"netket.sampler:MetropolisSampler.{name}", "in its place chains run in Rust", inherited=True)
        for name in _SAMPLING
    ),
    *(
        Private(f"netket.operator:{family}{which}.{name}", _IN_PLACE)
        for family in ("LocalOperator", "PauliStrings", "FermionOperator2nd")
        for which in ("Jax", "Numba")
        for name in ("_initialized", "_setup")
    ),
    *(
        Private(f"netket.operator:{cls}.{name}", _DEFINITION, inherited=True)
        for cls, names in {
            "IsingJax": ("_hilbert", "_h", "_J", "_edges"),
            "BoseHubbardJax": ("_hilbert", "_U", "_V", "_J", "_mu", "_edges", "_max_conn"),
            "LocalOperatorJax": ("_hilbert", "_dtype", "_operators_dict", "_constant", "_mel_cutoff"),
            "PauliStringsJax": ("_hilbert", "_dtype", "_operators", "_weights", "_cutoff"),
            "FermionOperator2ndJax": ("_hilbert", "_dtype", "_operators", "_cutoff"),
        }.items()
        for name in names
    ),
    *(
        Private(f"netket.operator:{cls}.{name}", _CALLED, inherited=True)
        for cls, names in {
            "DiscreteJaxOperator": ("_op__matmul__", "_op__rmatmul__"),
            "LocalOperatorJax": ("_setup", "_reset_caches", "_add_operator"),
            "PauliStringsJax": ("_setup", "_reset_caches"),
            "FermionOperator2ndJax": ("_setup", "_reset_caches"),
        }.items()
        for name in names
    ),
    *_ORDER,
    *_DIAGNOSTICS,
    Private("netket.sampler:MetropolisSampler._reset", _CALLED, inherited=True),
    Private("netket.optimizer.linear_operator:LinearOperator._solve", _CALLED, inherited=True),
    Private("netket._src.driver.vmc_sr:VMC_SR._dp", "a trust region makes it shorter", inherited=True),
    Private("netket._src.driver.vmc_sr:VMC_SR._loss_stats", "those of weighted samples are others", inherited=True),
    Private("netket.driver:VMC_SR._linear_solver", "to tell which matrix the solver of a driver gets"),
    Private("netket.driver:VMC_SR._ham", "to tell which operator's local energies a driver asks for"),
    Private("netket.driver:VMC._ham", "likewise"),
    Private("netket.driver:SteadyState._lind", "likewise"),
    Private("netket.operator:PauliStringsJax._cutoff", "the cutoff of Pauli strings isn't public, that of fermions is"),
    Private(
        "netket.experimental.operator:ParticleNumberConservingFermioperator2nd._operator_data",
        "all that such an operator is: nothing of it is public",
    ),
)


# Variational states


def model_of(vstate: MCState) -> Any:
    """The Flax module that NetKet evaluates: ``_model``. The public ``model`` may be of another framework."""
    return vstate._model


def log_psi_of(vstate: MCState) -> Callable[..., Any]:
    """The function ``log_psi(variables, x)`` that NetKet gives to kernels of local energies: ``_apply_fun``."""
    return vstate._apply_fun


def sampled_model_of(vstate: MCState) -> tuple[Any, Any]:
    """The module and the variables that NetKet gives to samplers: ``_sampler_model`` and ``_sampler_variables``."""
    return vstate._sampler_model, vstate._sampler_variables


@contextmanager
def sampled_by(vstate: MCState, sampler: Any) -> Iterator[None]:
    """Has a state draw samples with another sampler, whose chains have the same configurations: ``_sampler``.

    The public ``sampler`` begins new chains.
    """
    own = vstate._sampler
    vstate._sampler = sampler
    try:
        yield
    finally:
        vstate._sampler = own


# Samplers

HamiltonianRule = HamiltonianRuleBase
"""The class of the rules that :func:`netket.sampler.rules.HamiltonianRule`, a function, makes."""


def sampling_methods() -> dict[str, Callable[..., Any]]:
    """``_sample_chain`` and ``_sample_next`` of :class:`netket.sampler.MetropolisSampler`, which give the samples.

    Raises:
        MissingNameError: There is no such method, or it takes other arguments.
    """
    found = {name: vars(nk.sampler.MetropolisSampler).get(name) for name in _SAMPLING}
    for name, parameters in _SAMPLING.items():
        method = found[name]
        if method is None or tuple(inspect.signature(method).parameters) != parameters:
            whole = f"MetropolisSampler.{name}({', '.join(parameters[1:])})"
            raise MissingNameError(whole, "in whose place Ferroket runs chains in Rust")
    return found


def replace_sampling_methods(methods: Mapping[str, Callable[..., Any]]) -> None:
    """Puts others in the place of :func:`sampling_methods`."""
    for name, method in methods.items():
        setattr(nk.sampler.MetropolisSampler, name, method)


# Operators


def range_of_local_states(hilbert: Any) -> Any:
    """The first local state and the step of a space whose sites are alike, as ``start`` and ``step``, or None.

    The public ``local_states`` is a list of all of them, which a Fock space without a bound doesn't end.
    """
    return getattr(hilbert, "_local_states", None)


def cutoff_of(operator: nk.operator.PauliStrings) -> float:
    """The weights up to which Pauli strings are left out: ``_cutoff``."""
    return operator._cutoff


def order_of(operator: nk.operator.FermionOperator2nd) -> str | None:
    """In which order its terms are known to be; NetKet 3.20 has no such note."""
    return getattr(operator, "order", None)


def tables_of_conserving(operator: Any) -> dict[str, dict[Any, Any]]:
    """All that a fermionic operator that conserves particle numbers is: ``_operator_data``."""
    return operator._operator_data


# These are public, but have moved.

ParticleNumberConserving: Any = nk.experimental.operator.ParticleNumberConservingFermioperator2nd
ParticleNumberAndSpinConserving: Any = nk.experimental.operator.ParticleNumberAndSpinConservingFermioperator2nd
FermiHubbard: Any = getattr(nk.operator, "FermiHubbardJax", None) or nk.experimental.operator.FermiHubbardJax

# From NetKet 3.22 on. Spin flips have no public name: they come out of nk.symmetry.
EMBEDDINGS: tuple[Any, ...] = (nk.operator.EmbedOperator,) if hasattr(nk.operator, "EmbedOperator") else ()
SPIN_FLIPS: tuple[Any, ...] = ()
try:
    from netket._src.operator.spin_flip import SpinFlipOperator
except ImportError:
    pass
else:
    SPIN_FLIPS = (SpinFlipOperator,)
SpinFlipBase: Any = next(iter(SPIN_FLIPS), DiscreteJaxOperator)
"""What our spin flips are instances of."""


def compute_tables(operator: Any) -> bool:
    """Has NetKet's operator compute its tables, if it does so after each change in place; whether it does."""
    if not (hasattr(operator, "_initialized") and hasattr(operator, "_setup")):
        return False
    if not operator._initialized:
        operator._setup()
    return True


# Dispatch, by plum, of which all that is used is public


def rule_of(function: plum.Function, *types: type) -> Callable[..., Any]:
    """The rule that a function of NetKet's has for exactly these types.

    Raises:
        MissingNameError: There is none.
    """
    for method in function.methods:
        if method.signature.types == types:
            return method.implementation
    name = f"rule {function.__name__}({', '.join(cls.__name__ for cls in types)})"
    raise MissingNameError(name, "in whose place Ferroket evaluates operators")


# Updates of drivers, and the quantum geometric tensor

try:
    from netket._src.driver import infidelity_sr as _infidelity_sr
except ImportError:  # NetKet 3.20
    from netket.experimental.driver import infidelity_sr as _infidelity_sr

_DRIVERS = (_vmc_sr, _infidelity_sr)
"""The modules of the drivers of stochastic reconfiguration. They call the updates by their own names of them."""


@dataclass(frozen=True)
class Replaceable:
    """A function of NetKet's that others look up in a module, or in a class, each time that they call it."""

    name: str
    modules: tuple[ModuleType | type, ...]
    parameters: tuple[str, ...]
    """Those that we have to know. Others may be there."""
    use: str

    def find(self) -> Callable[..., Any]:
        """NetKet's function.

        Raises:
            MissingNameError: There is none, or it lacks a parameter.
        """
        for module in self.modules:
            function = getattr(module, self.name, None)
            found = () if function is None else inspect.signature(function).parameters
            if function is None or not set(self.parameters) <= set(found):
                raise MissingNameError(f"{module.__name__}.{self.name}({', '.join(self.parameters)})", self.use)
        return self.current

    @property
    def current(self) -> Callable[..., Any]:
        """What is in its place now, NetKet's or another."""
        function: Callable[..., Any] = getattr(self.modules[0], self.name)
        return function

    def replace(self, function: Callable[..., Any]) -> None:
        """Puts another function in its place."""
        for module in self.modules:
            setattr(module, self.name, function)


_UPDATE = (
    "log_psi",
    "parameters",
    "model_state",
    "samples",
    "diag_shift",
    "solver_fn",
    "mode",
    "proj_reg",
    "momentum",
    "old_updates",
    "chunk_size",
)
_IN_ITS_PLACE = "in whose place Ferroket makes updates of stochastic reconfiguration without a Jacobian"

UPDATES = {name: Replaceable(name, _DRIVERS, _UPDATE, _IN_ITS_PLACE) for name in ("srt_onthefly", "srt", "sr")}
"""NetKet's updates: by the neural tangent kernel on the fly, by that of a Jacobian, by the quantum geometric tensor."""

_MEASURED = "to measure what the parts of a step cost"
SAMPLE = Replaceable("sample", (MCState,), ("self",), _MEASURED)
"""The method that draws the samples of a step."""
LOCAL_ESTIMATORS = Replaceable("local_estimators", (MCState,), ("self", "op"), _MEASURED)
"""The method that computes the local energies of a step, and asks for the samples."""

JACOBIAN = Replaceable(
    "jacobian",
    (nk.jax,),
    ("apply_fun", "params", "samples", "model_state", "mode", "pdf", "chunk_size", "center", "dense", "_sqrt_rescale"),
    "in whose place Ferroket takes Jacobians apart",
)
"""The Jacobian of ln ψ, which quantum geometric tensors ask for."""

PRODUCTS = {
    name: Replaceable(
        name,
        (qgt_onthefly,),
        ("forward_fn", "params", "model_state", "samples", "pdf", *more),
        "in whose place Ferroket multiplies a quantum geometric tensor with vectors",
    )
    for name, more in {"mat_vec_factory": (), "mat_vec_chunked_factory": ("chunk_size",)}.items()
}
"""What makes the product of ``QGTOnTheFly`` with a vector, of all samples at once or in chunks."""


SR_DRIVERS: tuple[Any, ...] = (nk.driver.VMC_SR, _infidelity_sr.Infidelity_SR)
"""The drivers of stochastic reconfiguration: ``VMC_SR`` and ``Infidelity_SR``."""

STEP_METHOD = (
    "compute_loss_and_update" if hasattr(nk.driver.VMC_SR, "compute_loss_and_update") else "_forward_and_backward"
)
"""The method of these drivers that makes the update; NetKet 3.21 has renamed it."""


def step_with(driver: type, updates: Mapping[str, Callable[..., Any]]) -> Callable[..., Any]:
    """The method :data:`STEP_METHOD` of a driver, with other functions in the place of :data:`UPDATES`.

    NetKet's method takes them from its module, and nothing tells it to take others. So this is the same code in a
    namespace of its own: the module stays as it is.

    Raises:
        MissingNameError: The method calls no such functions.
    """
    step = inspect.unwrap(getattr(driver, STEP_METHOD))
    if missing := updates.keys() - set(step.__code__.co_names):
        raise MissingNameError(
            f"call of {', '.join(sorted(missing))} in {driver.__name__}.{STEP_METHOD}", _IN_ITS_PLACE
        )
    own = FunctionType(step.__code__, {**step.__globals__, **updates}, closure=step.__closure__)
    return timed(update_wrapper(own, step))


def is_sr_driver(driver: Any) -> bool:
    """Whether a driver calls :data:`UPDATES`."""
    return isinstance(driver, SR_DRIVERS)


def solver_of(driver: Any) -> Callable[..., Any]:
    """What solves the linear system of a driver: ``_linear_solver``."""
    solver: Callable[..., Any] = driver._linear_solver
    return solver


def operator_of(driver: Any) -> Any:
    """The operator whose local energies a driver asks for, ``_ham``, ``_lind`` or that of the dynamics; or None."""
    if hasattr(driver, "generator"):
        operator = driver.generator(driver.t)
    elif hasattr(driver, "_lind"):
        operator = driver._lind
    else:
        operator = driver._ham if hasattr(driver, "_ham") else None
    return operator if isinstance(operator, nk.operator.AbstractOperator) else None


_SCHMITT: Any = getattr(nk.experimental.driver, "TDVPSchmitt", ())


def tensor_of(driver: Any) -> Any:
    """What makes the quantum geometric tensor of a driver's preconditioner or dynamics; None if it has none."""
    preconditioner = getattr(driver, "preconditioner", None)
    if isinstance(preconditioner, nk.optimizer.SR):
        return preconditioner.qgt_constructor
    return nk.optimizer.qgt.QGTJacobianDense if isinstance(driver, _SCHMITT) else getattr(driver, "qgt", None)


def is_netkets_tensor(tensor: Any) -> bool:
    """Whether a function makes one of NetKet's quantum geometric tensors: they call what :data:`PRODUCTS` names."""
    qgt, function = nk.optimizer.qgt, getattr(tensor, "func", tensor)
    known = qgt.QGTAuto, qgt.QGTOnTheFly, qgt.QGTJacobianDense, qgt.QGTJacobianPyTree
    # With settings and without a state they hand on the functions that they wrap.
    wrapped = *known, *map(inspect.unwrap, known)
    return isinstance(function, qgt.QGTAuto) or any(function is one for one in wrapped)
