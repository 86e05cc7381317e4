"""Functions that decide by the values of their inputs."""

import pytest
import torch
from torch import Tensor

from bnnzoo.engine.chunks import kinds_of
from bnnzoo.engine.decisive import ValueAsked, content_of, decide, decide_alike, may_decide
from bnnzoo.engine.graphs import trace, trace_deciding
from bnnzoo.engine.lowered import Lowered
from bnnzoo.engine.torch_private import LoweringWarning


def by_groups(x: Tensor, codes: Tensor) -> Tensor:
    return x.new_zeros(int(codes.max()) + 1).index_add(0, codes, x)


def with_gaps_filled(x: Tensor, given: Tensor, fill: Tensor) -> Tensor:
    gaps = given.isnan()
    assert int(gaps.sum()) == len(fill)
    return given.nan_to_num(0.0).masked_scatter(gaps, fill.exp()) * x


def test_the_inputs_are_named_whose_value_is_asked_for() -> None:
    with pytest.raises(ValueAsked, match="depends on the inputs is asked for") as caught:
        trace(
            lambda x, y, codes: (by_groups(x + y, codes + 1),), [torch.ones(3), torch.ones(3), torch.tensor([0, 2, 1])]
        )
    assert caught.value.inputs == {2}


def test_a_graph_serves_the_codes_that_it_was_made_for() -> None:
    lowered = Lowered(by_groups)
    for codes in ([0, 1, 1, 0], [0, 1, 1, 0], [0, 3, 1, 1], [2, 2, 2, 2]):
        given = torch.tensor(codes)
        may_decide([given])
        for x in (torch.arange(4.0), torch.randn(4)):
            torch.testing.assert_close(lowered(x, given), by_groups(x, given))
            assert lowered.specialize(x, given).how == "traced"
    assert len(lowered._cache) == 3


def test_what_may_not_decide_is_not_part_of_a_graph() -> None:
    lowered, codes = Lowered(by_groups), torch.tensor([0, 1, 1, 0])
    with pytest.warns(LoweringWarning, match="The value of a tensor that depends on the inputs is asked for"):
        assert lowered.specialize(torch.ones(4), codes).how == "eager"


def test_a_value_that_depends_on_what_may_not_decide_is_refused() -> None:
    codes = torch.tensor([0, 2, 1])
    may_decide([codes])
    with pytest.raises(ValueAsked):
        trace_deciding(lambda x, codes: (x * float((x + codes).max()),), [torch.ones(3), codes])
    assert content_of(codes) is None


def test_tensors_of_equal_content_are_of_one_kind() -> None:
    one, same, other = torch.tensor([0, 1, 2]), torch.tensor([0, 1, 2]), torch.tensor([0, 1, 1])
    assert kinds_of([one]) == kinds_of([other])
    may_decide([one])
    decide([one])
    decide_alike([same, other], [one, one])
    assert kinds_of([one]) == kinds_of([same])
    assert kinds_of([one]) != kinds_of([other])


@pytest.mark.parametrize("entries", [torch.zeros(0), torch.ones(3, 2).T, torch.tensor(True), torch.ones(2).bfloat16()])
def test_content_of_all_kinds_of_tensors(entries: Tensor) -> None:
    again = entries.clone()
    may_decide([entries, again])
    decide([entries, again])
    assert content_of(entries) == content_of(again) is not None


def test_a_condition_that_is_known_is_written_as_the_numbers_of_its_places() -> None:
    given, fill, x = torch.tensor([1.0, torch.nan, 3.0, torch.nan]), torch.tensor([0.1, 0.2]), torch.arange(4.0)
    may_decide([given])

    def slope(x: Tensor, given: Tensor, fill: Tensor) -> tuple[Tensor, Tensor]:
        return torch.func.grad_and_value(lambda each: with_gaps_filled(x, given, each).sum())(fill)

    graph, _ = trace_deciding(slope, [x, given, fill])
    for found, expected in zip(graph(x, given, fill), slope(x, given, fill), strict=True):
        torch.testing.assert_close(found, expected)
    assert not [node for node in graph.graph.nodes if "masked_scatter" in str(node.target)]


def test_a_condition_by_which_rows_are_chosen_is_part_of_the_graph_if_it_may_be() -> None:
    def chosen(x: Tensor, seen: Tensor) -> tuple[Tensor]:
        return (x[seen] * 2,)

    x, seen = torch.arange(4.0), torch.tensor([True, False, True, True])
    free, _ = trace_deciding(chosen, [x, seen])
    other = torch.tensor([False, True, True, True])
    torch.testing.assert_close(free(x, other)[0], torch.tensor([2.0, 4.0, 6.0]))
    may_decide([seen])
    held, _ = trace_deciding(chosen, [x, seen])
    torch.testing.assert_close(held(x, seen)[0], torch.tensor([0.0, 4.0, 6.0]))
    assert content_of(seen) is not None
    assert content_of(x) is None


def test_a_tensor_that_is_written_into_has_other_content() -> None:
    lowered, x, codes = Lowered(by_groups), torch.arange(4.0), torch.tensor([0, 1, 1, 0])
    may_decide([codes])
    assert len(lowered(x, codes)) == 2
    codes[3] = 4
    torch.testing.assert_close(lowered(x, codes), by_groups(x, codes))
    with torch.inference_mode():
        inside = torch.tensor([0, 2])
        may_decide([inside])
        assert decide([inside]) and content_of(inside) is not None
