"""What names alone say of where the results of calls and attributes live."""

from __future__ import annotations

import re

from gpulint.index.devices import Where

FACTORIES = frozenset(
    f"torch.{n}"
    for n in (
        "tensor zeros ones full empty eye arange linspace logspace rand randn randint "
        "randperm normal as_tensor from_numpy tril_indices triu_indices scalar_tensor "
        "FloatTensor LongTensor Tensor IntTensor BoolTensor DoubleTensor ByteTensor "
        "HalfTensor hann_window hamming_window blackman_window bartlett_window"
    ).split()
)
_PLAIN_CALLS = frozenset(
    "float int bool len str repr range isinstance type print format round id hash "
    "open input hasattr callable issubclass time.time time.perf_counter".split()
)
# What torch says of a tensor, or of itself, without a look at its values.
_PLAIN_TORCH = re.compile(
    r"torch\.(is_(?!nonzero|same_size)\w+|get_\w+|numel|result_type|promote_types|"
    r"can_cast|are_deterministic\w*|initial_seed|manual_seed|broadcast_shapes|"
    r"backends\.\w+|version\.\w+|(i|f)info)"
)
_SAME_CALLS = frozenset(
    "sum max min abs zip list tuple sorted reversed enumerate iter next map filter "
    "dict set tqdm tqdm.tqdm torch.autograd.Variable itertools.chain copy.deepcopy "
    "copy.copy itertools.cycle tqdm.auto.tqdm".split()
)
# A method or attribute of a tensor that gives no tensor, or one of none: a module.
PLAIN_METHODS = frozenset(
    "item tolist size dim numel ndimension stride data_ptr element_size nelement "
    "is_contiguous get_device is_pinned storage_offset has_names is_floating_point "
    "state_dict keys format join split strip __len__".split()
)
# A method of a tensor that is given sizes, dimensions or numbers: its result lives
# where the tensor does.
KEEPING_METHODS = frozenset(
    "view view_as reshape reshape_as expand expand_as permute transpose movedim t "
    "squeeze unsqueeze flatten unflatten contiguous repeat repeat_interleave tile "
    "narrow chunk split unbind unfold roll flip sum mean std var prod argmax argmin "
    "argsort sort topk cumsum cumprod softmax log_softmax any all norm clone detach "
    "float double half bfloat16 long int bool".split()
)
# One whose other tensor must lie where it does itself.
JOINING_METHODS = frozenset(
    "eq ne gt ge lt le matmul mm bmm logical_and logical_or logical_xor masked_fill "
    "masked_select".split()
)
PLAIN_ATTRIBUTES = frozenset(
    "shape size device dtype ndim requires_grad is_cuda is_leaf grad_fn layout name "
    "is_sparse itemsize nbytes __class__ __name__ training".split()
)
_PARAMETER = re.compile(r"torch\.(\w+\.)*nn\.(parameter\.)?Parameter")
_MODULES = ("torch.nn.", "torch.optim.", "torch.utils.", "torch.device")
_FUNCTIONS = ("torch.nn.functional.", "torch.nn.utils.rnn.")
# Of gradients, which are where their model is.
NORMS = frozenset("clip_grad_norm_ get_total_norm".split())


def result_of(name: str) -> Where | None:
    """Where the result of a call lives by its full name; None: its arguments say."""
    if name in _PLAIN_CALLS or _PLAIN_TORCH.fullmatch(name):
        return Where.PLAIN
    if name.startswith("torch.cuda."):
        return Where.DEVICE if name.endswith("Tensor") else Where.PLAIN
    if name.startswith(("np.", "numpy.")):
        return Where.HOST
    if name.startswith("torch.") and name.rpartition(".")[2] in NORMS:
        return Where.UNKNOWN
    if name.startswith(_MODULES) and not name.startswith(_FUNCTIONS):
        return None if is_parameter(name) else Where.PLAIN
    return None


def is_parameter(name: str) -> bool:
    """`torch.nn.Parameter`, which goes where its module goes."""
    return _PARAMETER.fullmatch(name) is not None


def keeps_place(name: str) -> bool:
    """Whether a call's result lives where its arguments do: `zip`, `tqdm`."""
    return name in _SAME_CALLS or name.rpartition(".")[2] in ("tqdm", "trange")
