"""Plans in a few words, for the cells of tables. The page of the documents says what they mean."""

from ferroket.natural_gradient.explanation import BY_XLA
from ferroket.network import Plan


def of_samples(plan: Plan, *, is_known: bool = False) -> str:
    """What makes samples, or evaluates local energies.

    Args:
        plan: The plan.
        is_known: Whether amplitude ratios of the model are known: then the reason why they aren't used is told.
    """
    if plan.is_netkets:
        return _netkets(plan)
    if plan.known is not None:
        return "amplitude ratios in Rust"
    words = ["network in Rust" if plan.rest else "network by XLA"]
    words += ["first layer updated"] if plan.first_layer is not None else []
    words += ["ratios of determinants in Rust"] if plan.determinants else []
    reason = plan.structure.reason or ""
    if is_known:
        reason = plan.reasons[0]
    elif not plan.rest:
        reason = reason.removeprefix("XLA evaluates it: ").removeprefix("XLA evaluates the rest: ")
    return ", ".join(words) + (f": {reason}" if reason else "")


def of_update(plan: Plan) -> str:
    """What makes an update: the forms of its log-derivatives, and what differentiates the network."""
    if plan.is_netkets:
        return _netkets(plan)
    # Biases and the like are small whatever their form is.
    layers = [layer for layer in plan.layers if len(layer.shape) > 1] or plan.layers
    forms = sorted({layer.form.removeprefix("rows of ") for layer in layers})
    why = [reason.removeprefix(BY_XLA) for reason in plan.reasons if reason.startswith(BY_XLA)]
    where = f"{plan.derivatives.removeprefix('differentiated ')}: {why[0]}" if why else "in Rust"
    return f"{' and '.join(forms)}, derivatives {where}"


def _netkets(plan: Plan) -> str:
    """Why NetKet's own code runs, without what to do."""
    return f"NetKet: {plan.reasons[0].partition('. ')[0]}"
