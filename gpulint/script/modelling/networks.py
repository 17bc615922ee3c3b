"""What the models of a script do their arithmetic with, as far as it can be seen.

Precision settings serve matrix products and convolutions that are large enough to keep
a GPU busy. A model that is not known, or of which only small layers are, is no ground
for telling anybody to change the numbers of a program.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gpulint.index.walk import walk
from gpulint.script.modelling.models import constructors, makers, trained_models
from gpulint.script.modelling.network import (
    ATTENTION,
    CONVOLUTIONAL,
    OF_LARGE,
    Network,
    is_product,
    network,
)
from gpulint.script.neighbours import run_together
from gpulint.script.numerics.hazards import is_gram
from gpulint.script.numerics.reached import leads_to

if TYPE_CHECKING:
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script

_NO_NETWORK = re.compile(r"Loss|Criteri|Metric|Accuracy")
FEW_OF_ALL = 4  # of so many models that an option chooses from, one must be large
HALF_OF_ALL = 2
ALL = 1
LARGE = (ATTENTION, CONVOLUTIONAL, OF_LARGE)  # models of packages, by name


def multiplies_much(script: Script) -> bool:
    """Whether a model that is trained is seen to make large products of matrices.

    Convolutions and recurrent layers are in TF32 by default, so they do not count; nor
    does the one linear layer of a classifier behind them, nor do embeddings.
    """
    if _trains_one(script, "multiplies_much", (ATTENTION,)):
        return True
    if trained_models(script):
        return False
    loops = script.training_loops  # of weights that no module holds
    return any(is_product(script, n) for x in loops for n in walk(x.node, *x.helpers))


def multiplies_beside(script: Script) -> bool:
    """Whether a large model has linear layers beside what is in TF32 by default."""
    return _trains_one(script, "multiplies_beside", LARGE)


def is_large(script: Script) -> bool:
    """Whether a model that is trained is seen to keep a GPU's tensor cores busy."""
    return _trains_one(script, "is_large", LARGE)


def may_be_large(script: Script) -> bool:
    """Whether a model that is trained has layers of which no size is known."""
    return _trains_one(script, "may_be_large", ())


def is_surely_large(script: Script) -> bool:
    """Whether that holds for whatever sizes its options and callers may give it.

    And for all networks of the program, where it may be each of them.
    """
    return _trains_one(script, "is_surely_large", (), ALL)


def surely_multiplies(script: Script) -> bool:
    """Whether a model that is trained surely spends its time in matrix products."""
    return _trains_one(script, "surely_multiplies", (ATTENTION,))


def likely_multiplies(script: Script) -> bool:
    """The same, where features that are not known count as many."""
    return _trains_one(script, "likely_multiplies", (ATTENTION,))


def transforms_spectra(script: Script) -> bool:
    """Whether a model that is trained may be one of Fourier transforms."""
    return _trains_one(script, "transforms_spectra", ())


def has_phases(script: Script) -> bool:
    """Whether a model that is trained may have sines for activations."""
    return _trains_one(script, "has_phases", ())


def solves_systems(script: Script) -> bool:
    """Whether a model that is trained may solve systems, also of differential ones."""
    return _trains_one(script, "solves_systems", ())


def steps_by_cells(script: Script) -> bool:
    """Whether a model that is trained may make a step of its own for each frame."""
    return _trains_one(script, "steps_by_cells", ())


def casts_itself(script: Script) -> bool:
    """Whether a model that is trained may compute in half precision by its own code.

    `autocast` in a `forward`, weights that its class makes bfloat16.
    """
    return _trains_one(script, "names_half", ())


def may_run_cudnn(script: Script) -> bool:
    """Whether a model that is trained may run what cuDNN is asked for."""
    made = constructors(script)
    networks = [network(script, call) for call in made if call is not None]
    return len(networks) < max(len(made), 1) or any(n.may_run_cudnn for n in networks)


def are_seen(script: Script) -> bool:
    """Whether some layer of each model that is trained is known, or its origin."""
    made = constructors(script)
    return bool(made) and all(
        call is not None and network(script, call).is_seen for call in made
    )


def has_large(script: Script, models: Sequence[ast.expr] = ()) -> bool:
    """Whether a program has a large network; of some models alone, if it is given any.

    Whoever may train it, also what is no loop of the program.
    """
    return _is_one(script, models, "is_large", LARGE)


def has_surely_large(script: Script, models: Sequence[ast.expr]) -> bool:
    """The same, for whatever sizes its options and callers may give it."""
    return _is_one(script, models, "is_surely_large", LARGE)


def has_products(script: Script, models: Sequence[ast.expr] = ()) -> bool:
    """Whether a program has a network that multiplies much, or some models do."""
    return _is_one(script, models, "multiplies_much", (ATTENTION,))


def has_sure_products(script: Script, models: Sequence[ast.expr]) -> bool:
    """The same, for whatever sizes its options and callers may give it."""
    return _is_one(script, models, "surely_multiplies", (ATTENTION,))


def takes_large(script: Script) -> bool:
    """Whether a program takes a large network from a package."""
    return _takes_one(script, LARGE)


def attends(script: Script) -> bool:
    """Whether a program takes a model made of attention from a package."""
    made = [m for model in trained_models(script) for m in makers(script, model)]
    known = (network(script, call) for call in made if call is not None)
    return any(n.is_of_attention for n in known) or _takes_one(script, (ATTENTION,))


def convolves_pictures(script: Script) -> bool:
    """Whether a model that is trained is seen to look at neighbouring pixels."""
    return _trains_one(script, "convolves_pictures", (CONVOLUTIONAL,), HALF_OF_ALL)


def _trains_one(
    script: Script,
    question: str,
    kinds: tuple[re.Pattern[str], ...],
    of_all: int = FEW_OF_ALL,
) -> bool:
    """Whether a model that is trained answers a question with yes."""
    models = trained_models(script)
    return bool(models) and _is_one(script, models, question, kinds, of_all)


def _is_one(
    script: Script,
    models: Sequence[ast.expr],
    question: str,
    kinds: tuple[re.Pattern[str], ...],
    of_all: int = FEW_OF_ALL,
) -> bool:
    """Whether one of some models answers a question with yes.

    One that is not known may be each of the program's own, or of the kinds that the
    program takes from a package: one `of_all` must answer so.
    """
    unknown = not models
    for model in models:
        made = list(dict.fromkeys(makers(script, model)))
        known = [network(script, call) for call in made if call is not None]
        if _likely(known, question, of_all):
            return True
        if not known or None in made or not all(n.is_seen for n in known):
            unknown = True
    if not unknown:
        return False
    own = [network(script, owner) for owner in own_networks(script)]
    return _likely(own, question, of_all) or _takes_one(script, kinds)


def _likely(networks: list[Network], question: str, of_all: int) -> bool:
    """Whether enough of what a model may be answers a question with yes."""
    found = [getattr(network, question) for network in networks]
    return found.count(True) * of_all >= max(len(found), 1)


def _takes_one(script: Script, kinds: tuple[re.Pattern[str], ...]) -> bool:
    """Whether a program's files take a model of a kind from a package."""
    for index in run_together(script):
        origins = [
            origin
            for origin in index.imported
            if any(kind.search(f"{origin}.") for kind in kinds)
            and not index.owns(origin)
        ]
        if any(origin.rpartition(".")[2][:1].isupper() for origin in origins):
            return True  # a class, which a table or a wrapper may make
        names = (index.qualified(c.func) for c in index.all(ast.Call) if origins)
        made = [name for name in names if name and name.startswith(tuple(origins))]
        if any(kind.search(name) for kind in kinds for name in made):
            return True
    return False


def own_networks(script: Script) -> list[ast.ClassDef]:
    """The networks of a program's files, whole ones: not what others are made of."""
    project, tree = script.index.project, script.index.tree

    def found() -> list[ast.ClassDef]:
        return list(_whole_networks(script))

    return project.remembered("own networks", tree, found) if project else found()


def _whole_networks(script: Script) -> Iterator[ast.ClassDef]:
    modules = [
        owner
        for index in run_together(script)
        for owner in index.classes.values()
        if script.modules.is_module_class(owner)
    ]
    parts: set[ast.AST] = set()
    for owner in modules:
        below = [*leads_to(script, owner), *script.resolver.classes.bases(owner)]
        parts.update(part for part in below if part is not owner)
    yield from (m for m in modules if m not in parts and not _NO_NETWORK.search(m.name))


def makes_gram_matrix(script: Script, loop: Loop) -> bool:
    """Whether the steps of a loop multiply features with themselves, as of a style."""
    return any(is_gram(script, node) for node in walk(loop.node, *loop.helpers))
