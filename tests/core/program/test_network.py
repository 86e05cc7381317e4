import torch

from bnnzoo.core.program.network import NETWORK_KEY, Network


def test_records_are_equal_only_to_themselves_and_hashable():
    module = torch.nn.Linear(2, 1)
    first = Network("net", module, {"weight": "net.weight"})
    second = Network("net", module, {"weight": "net.weight"})
    assert first == first
    assert first != second
    assert len({first, second}) == 2


def test_key_is_a_plain_string():
    assert NETWORK_KEY == "bnnzoo_network"
