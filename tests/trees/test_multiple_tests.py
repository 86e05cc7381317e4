"""Several tests at once."""

from bnnzoo.trees.multiple_tests import holm


def test_holms_procedure() -> None:
    p_values = [0.2, 0.001, 0.02, 0.011]
    assert holm(p_values, 0.05).tolist() == [False, True, True, True]
    assert holm(p_values, 0.003).tolist() == [False, False, False, False]
    assert holm([0.03, 0.001], 0.01).tolist() == [False, True]
    assert holm([0.02, 0.025], 0.03).tolist() == [False, False]  # the first is not, so neither is the second
    assert holm([], 0.05).tolist() == []
